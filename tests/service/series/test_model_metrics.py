"""A counter for each class, as long as they are few."""

from collections.abc import Sequence

import numpy as np
from prometheus_client import CollectorRegistry, Counter

from demur.service.series.model_metrics import MOST_CLASSES, OTHERS, ClassCounters


def counted(classes: int, *batches: list[int], usual: Sequence[int] = ()) -> tuple[ClassCounters, dict[str, float]]:
    registry = CollectorRegistry()
    counter = Counter("found", "Found.", ["label"], registry=registry)
    counters = ClassCounters([f"class {k}" for k in range(classes)], counter.labels, usual)
    for batch in batches:
        counters.add(np.array(batch, np.intp))
    samples = [sample for family in registry.collect() for sample in family.samples if sample.name == "found_total"]
    return counters, {sample.labels["label"]: sample.value for sample in samples}


def test_few_classes_all_begin_at_zero() -> None:
    counters, found = counted(3, [2, 0, 2], [])
    assert found == {"class 0": 1, "class 1": 0, "class 2": 2}
    assert list(counters.names()) == list(found)


def test_of_many_the_usual_ones_have_their_own() -> None:
    usual = [*range(500, 1000), *range(500)]
    counters, found = counted(1000, [], [999, 500, 500, 998, 999], usual=usual)
    assert len(found) == MOST_CLASSES + 1
    assert (found["class 500"], found["class 501"], found[OTHERS]) == (2, 0, 3)
    assert set(counters.names()) == set(found)
