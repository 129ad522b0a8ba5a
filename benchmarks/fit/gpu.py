"""The paper's largest posterior on a GPU: ResNet-18, 60,000 examples, S = 42,438, from selection to bundle.

Noise in place of images: it costs the same. Where there is no GPU, the result says so and nothing is measured.
"""

import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor

from benchmarks.core.harness import call
from benchmarks.core.settings import Settings, Values
from benchmarks.fit.networks.zoo import network_spec
from probity.offline import FitConfig, fit_bundle
from probity.offline.runtime.progress import one_step

T = TypeVar("T")
EXAMPLES, HELD_OUT, WEIGHTS = 60_000, 2_000, 42_438
QUICK_EXAMPLES, QUICK_WEIGHTS = 512, 200
BATCH, SNAPSHOTS = 128, 5
GOAL_SECONDS = 10 * 60


class Stopwatch:
    """A `Track` that keeps the seconds from each stage's first item to its end."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def __call__(self, items: Iterable[T], description: str, total: int | None = None) -> Iterable[T]:  # noqa: ARG002
        start = time.perf_counter()
        yield from items
        self.seconds[description] = self.seconds.get(description, 0.0) + time.perf_counter() - start


def run(settings: Settings) -> Values:
    """Measure where torch has a GPU; otherwise say so."""
    if not torch.cuda.is_available():
        return {"skipped": "no cuda device here: run `python -m benchmarks gpu` on a machine with one"}
    values = {
        "size": settings.choose("full", "miniature"),
        "examples": settings.choose(EXAMPLES, QUICK_EXAMPLES),
        "weights": settings.choose(WEIGHTS, QUICK_WEIGHTS),
        "device": "cuda",
    }
    measured = one_step(
        settings.track, "Fit on the GPU", lambda: call("benchmarks.fit.gpu:fit", values, settings.threads)
    )
    return {**values, "goal_seconds": GOAL_SECONDS, **measured}


def fit(values: dict[str, Any]) -> Values:
    """In a fresh process: the whole job, its stages, and the largest memory that tensors took on the device."""
    network = network_spec("resnet18", values["size"])
    model, watch = network.model(), Stopwatch()
    train = batches(*network.data(values["examples"]))
    held_out = batches(*network.data(min(HELD_OUT, values["examples"]), seed=1))
    config = FitConfig(
        subnetwork_size=values["weights"],
        selection="wasserstein-swag",
        selection_options={"snapshots": SNAPSHOTS, "learning_rate": 1e-4},
        prior_precision=500.0,  # the search needs every eigenvalue of H_S: minutes, and not of the GPU
        device=values["device"],
    )
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        path = fit_bundle(
            model, train, Path(folder) / "bundle", calibration_loader=held_out, config=config, progress=watch
        )
        seconds = time.perf_counter() - start
        size = sum(file.stat().st_size for file in path.iterdir())
    cuda = values["device"] == "cuda"
    return {
        "device_name": torch.cuda.get_device_name() if cuda else "cpu",
        "seconds": seconds,
        "stage_seconds": watch.seconds,
        "bundle_bytes": size,
        "device_peak_bytes": torch.cuda.max_memory_allocated() if cuda else 0,
    }


def batches(inputs: Tensor, targets: Tensor) -> list[tuple[Tensor, Tensor]]:
    return list(zip(torch.split(inputs, BATCH), torch.split(targets, BATCH), strict=True))
