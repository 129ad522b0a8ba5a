"""service/series/confidence_series.py: what is counted, and what held-out data showed, beside it."""

from pathlib import Path

import numpy as np
import pytest
from prometheus_client import CollectorRegistry

from demur.service.inference.predictor import Predictor
from demur.service.monitoring.metrics import Metrics
from demur.service.series.confidence_series import ConfidenceSeries
from tests.support.bundles import FEATURE_SPEC, Synthetic, write_linear
from tests.support.outcomes import sure_of_held_out

MODEL = ("synthetic", "1")
LABELS = dict(zip(("model", "version"), MODEL, strict=True))


def series_of(predictor: Predictor) -> tuple[ConfidenceSeries, CollectorRegistry]:
    registry = CollectorRegistry()
    return ConfidenceSeries(Metrics(registry), MODEL, predictor.decision), registry


@pytest.mark.parametrize("kind", ["classification", "multilabel"])
def test_sums_by_what_was_decided(kind: str, tmp_path: Path) -> None:
    several = kind == "multilabel"
    bundle = write_linear(tmp_path / "plain", outputs=3, spec=FEATURE_SPEC, several=several)
    predictor = Predictor.load(sure_of_held_out(bundle.path, tmp_path / "bundle", 0.75))
    series, registry = series_of(predictor)

    def value(name: str, decision: str) -> float | None:
        return registry.get_sample_value(f"demur_{name}", LABELS | {"decision": decision})

    shape = (200, *predictor.manifest.input.shape)
    found = predictor.predict(np.random.default_rng(0).normal(scale=3, size=shape).astype(np.float32))
    p, rejected = found.probabilities, found.rejected
    assert p is not None
    assert 0 < rejected.sum() < 200
    series.count(found)
    sure = np.prod(np.maximum(p, 1 - p), axis=1) if kind == "multilabel" else p.max(axis=1)
    for decision, those in (("accepted", ~rejected), ("rejected", rejected)):
        assert value("decided_examples_total", decision) == those.sum()
        assert value("decided_confidence_total", decision) == pytest.approx(sure[those].sum())

    assert value("held_out_confidence_excess", "all") is None
    series.announce()
    for decision in ("accepted", "all"):
        assert value("held_out_confidence_excess", decision) == pytest.approx(-0.25)
        low, high = (value(f"held_out_accuracy_{end}", decision) for end in ("low", "high"))
        assert low is not None
        assert 0 < low < 1 == high
    assert value("held_out_accuracy_low", "accepted") < value("held_out_accuracy_low", "all")  # type: ignore[operator]
    series.withdraw()
    assert value("held_out_confidence_excess", "all") is None
    series.remove()
    assert value("decided_examples_total", "accepted") is None


def test_a_bundle_that_does_not_say_how_sure_it_was_is_counted_alone(classification: Synthetic) -> None:
    series, registry = series_of(Predictor.load(classification.path))
    series.announce()
    names = {sample.name for family in registry.collect() for sample in family.samples}
    assert "demur_decided_examples_total" in names
    assert not any("held_out" in name for name in names)
    series.withdraw()


def test_a_regression_has_no_confidence(regression: Synthetic) -> None:
    predictor = Predictor.load(regression.path)
    series, registry = series_of(predictor)
    series.announce()
    series.count(predictor.predict(np.zeros((2, *predictor.manifest.input.shape), np.float32)))
    samples = [sample.name for family in registry.collect() for sample in family.samples if "decided" in sample.name]
    assert samples == []
    series.remove()
