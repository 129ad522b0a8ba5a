"""What fitting ResNet-18 on CIFAR-sized data costs: seconds of each stage of a real fit, with fewer examples.

Stages that pass over the training data are extrapolated in proportion to N, up to the largest sample that they take;
the others do not depend on N, and are taken as they were measured.
"""

import math
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor

from benchmarks.core.harness import call
from benchmarks.core.settings import Settings, Values
from benchmarks.fit.networks.zoo import Size, network_spec
from probity.offline.config import FitConfig
from probity.offline.fit import fit_bundle
from probity.offline.selection.strategies.auto import EXAMPLES

T = TypeVar("T")
BATCH, TRAINED, HELD_OUT = 128, 1024, 1000
QUICK_TRAINED, QUICK_HELD_OUT, QUICK_WEIGHTS = 64, 80, 50
EXTRAPOLATED = (50_000, 60_000)
# Stages whose time grows with N, and the most examples that they look at. Other
# samples are smaller than those measured.
PROPORTIONAL = {
    "Live weights": EXAMPLES,
    "Curvature": math.inf,
}
OTHER = "other"


@dataclass(frozen=True)
class Row:
    """One fit: how the weights are chosen."""

    name: str
    selection: str


ROWS = (Row("auto", "auto"), Row("anywhere", "random"))
NAMES, QUICK = tuple(row.name for row in ROWS), (ROWS[0].name,)


def run(settings: Settings) -> Values:
    """One process for each row."""
    names, size = settings.names(NAMES, QUICK), settings.choose("full", "miniature")
    counts = settings.choose((TRAINED, HELD_OUT, 2000), (QUICK_TRAINED, QUICK_HELD_OUT, QUICK_WEIGHTS))
    chosen = [row for row in ROWS if row.name in names]
    rows = []
    for row in settings.track(chosen, "Fits", len(chosen)):
        values = {**asdict(row), "size": size, "trained": counts[0], "held_out": counts[1], "weights": counts[2]}
        found = call("benchmarks.fit.cost:measure", values, settings.threads)
        estimates = {str(count): extrapolate(found["stages"], counts[0], count) for count in EXTRAPOLATED}
        rows.append({**values, **found, "extrapolated": estimates})
    return {
        "rows": settings.with_earlier("cost.json", "name", rows, NAMES),
        "proportional_to_n": [f"{name}, at most {most} examples" for name, most in PROPORTIONAL.items()],
        "note": "no pass over N examples was made: stages in `proportional_to_n` are extrapolated from `trained`",
    }


def extrapolate(stages: dict[str, float], measured: int, count: int) -> Values:
    """Seconds of each stage and of all for `count` examples, from those for `measured`."""
    seconds = {
        name: value * min(count, PROPORTIONAL[name]) / min(measured, PROPORTIONAL[name])
        if name in PROPORTIONAL
        else value
        for name, value in stages.items()
    }
    return {"seconds": seconds, "total_seconds": sum(seconds.values())}


class StageTimer:
    """A `Track` that sums the seconds spent in loops with the same description; what is in none of them is "other".

    Loops inside a loop count for the outer one.
    """

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self._depth = 0

    def __call__(self, items: Iterable[T], description: str, total: int | None = None) -> Iterator[T]:  # noqa: ARG002
        start, self._depth = time.perf_counter(), self._depth + 1
        try:
            yield from items
        finally:
            self._depth -= 1
            if not self._depth:
                self.seconds[description.partition(",")[0]] += time.perf_counter() - start


def measure(values: dict[str, Any]) -> Values:
    """In a fresh process: a fit, with the time of its stages."""
    size: Size = values["size"]
    spec, trained = network_spec("resnet18", size), values["trained"]
    inputs, targets = spec.data(trained + values["held_out"])
    train, held_out = batches(inputs[:trained], targets[:trained]), batches(inputs[trained:], targets[trained:])
    config = FitConfig(subnetwork_size=values["weights"], selection=values["selection"])
    timer, start = StageTimer(), time.perf_counter()
    with tempfile.TemporaryDirectory() as scratch:
        fit_bundle(
            spec.model(), train, Path(scratch) / "bundle", calibration_loader=held_out, config=config, progress=timer
        )
    whole = time.perf_counter() - start
    return {"stages": {**timer.seconds, OTHER: whole - sum(timer.seconds.values())}, "seconds": whole}


def batches(inputs: Tensor, targets: Tensor) -> list[tuple[Tensor, Tensor]]:
    return list(zip(torch.split(inputs, BATCH), torch.split(targets, BATCH), strict=True))
