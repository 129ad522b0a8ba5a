"""A bundle with weights anywhere in the network, served with its cascade and without: time, verdicts, false rejects."""

import statistics
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from benchmarks.core.folders import ROOT
from benchmarks.core.harness import call
from benchmarks.core.settings import Settings, Values
from benchmarks.experiments.mnist.data import images, labels, normalise, rotate
from benchmarks.experiments.mnist.networks import trained
from offline.config import FitConfig
from offline.export.price import seconds_of
from offline.fit import fit_bundle
from offline.recipes.load import load_recipe
from service.inference.predictor import Predictor

Array = npt.NDArray[Any]
Data = tuple[Tensor, Tensor]
BATCHES, ROUNDS = (1, 16, 64), 5
BATCH = 128
TRAINED, HELD_OUT, TESTED, EPOCHS = 20_000, 2_000, 2_000, 3


@dataclass(frozen=True)
class Row:
    """One network, and how many weights `novelty-sampling` chooses anywhere in it."""

    name: str
    network: str
    weights: int


ROWS = (
    Row("digits", "digits", 500),
    Row("MNIST CNN", "mnist-cnn", 750),
)
NAMES, QUICK = tuple(row.name for row in ROWS), ("digits",)


@dataclass(frozen=True)
class Problem:
    """A trained network and its data; `tested`: name -> inputs that it has not seen, the ordinary ones first."""

    model: nn.Module
    train: Data
    held_out: Data
    tested: dict[str, Tensor]

    def train_batches(self) -> list[Data]:
        """The training data in batches."""
        return list(zip(*(torch.split(part, BATCH) for part in self.train), strict=True))


def run(settings: Settings) -> Values:
    """One process for each row; it fits with all threads, and predicts with one."""
    names = settings.names(NAMES, QUICK)
    chosen = [row for row in ROWS if row.name in names]
    rows = [
        {**asdict(row), **call("benchmarks.fit.cascade:one", asdict(row), settings.threads)}
        for row in settings.track(chosen, "Cascade", len(chosen))
    ]
    return {"rows": settings.with_earlier("cascade.json", "name", rows, NAMES)}


def one(values: dict[str, Any]) -> dict[str, Any]:
    """Fit the row's bundle, and ask it with the cascade on and off."""
    row = Row(**{name: value for name, value in values.items() if name != "threads"})
    problem = _problem(row.network)
    with tempfile.TemporaryDirectory() as scratch:
        config = FitConfig(
            subnetwork_size=row.weights,
            selection="novelty-sampling",
            cascade=True,
        )
        start = time.perf_counter()
        folder, held_out = Path(scratch) / "bundle", [problem.held_out]
        fit_bundle(problem.model, problem.train_batches(), folder, calibration_loader=held_out, config=config)
        seconds = time.perf_counter() - start
        full = Predictor.load(folder, threads=1, plain_too=True)
        cascade = Predictor.load(folder, threads=1, cascade=True)
    described = full.manifest.cascade
    assert described is not None
    ordinary = next(iter(problem.tested.values())).numpy()
    return {
        "fit_seconds": seconds,
        "S": full.manifest.subnetwork_size,
        "D": full.manifest.parameter_count,
        "first_stage_weights": described.size,
        "agreement": asdict(described.agreement),
        "batches": [timed(full, cascade, ordinary, batch) for batch in BATCHES],
        "tested": {name: compared(full, cascade, x.numpy()) for name, x in problem.tested.items()},
    }


def timed(full: Predictor, cascade: Predictor, inputs: Array, batch: int) -> dict[str, Any]:
    """Examples a second over all ordinary inputs in batches, and seconds over those of the plain network."""
    parts = [inputs[i : i + batch] for i in range(0, len(inputs) - batch + 1, batch)][: max(20, 640 // batch)]
    works = {
        "plain": lambda: [full.mean(part) for part in parts],
        "full": lambda: [full.predict(part) for part in parts],
        "cascade": lambda: [cascade.predict(part) for part in parts],
    }
    rounds = [{name: seconds_of(work, 1) for name, work in works.items()} for _ in range(ROUNDS)]
    examples = sum(map(len, parts))
    return {
        "batch": batch,
        "examples_per_second": {name: examples / statistics.median(each[name] for each in rounds) for name in works},
        "full_over_plain": statistics.median(each["full"] / each["plain"] for each in rounds),
        "cascade_over_plain": statistics.median(each["cascade"] / each["plain"] for each in rounds),
        "full_over_cascade": statistics.median(each["full"] / each["cascade"] for each in rounds),
    }


def compared(full: Predictor, cascade: Predictor, inputs: Array) -> dict[str, float]:
    """Shares of the examples: decided by the first stage, rejected by either, and with the same verdict by both."""
    one, other = full.predict(inputs), cascade.predict(inputs)
    assert other.by_first_stage is not None
    return {
        "examples": len(inputs),
        "by_first_stage": float(np.mean(other.by_first_stage)),
        "rejected_full": float(np.mean(one.rejected)),
        "rejected_cascade": float(np.mean(other.rejected)),
        "same_verdict": float(np.mean(one.rejected == other.rejected)),
    }


def _problem(network: str) -> Problem:
    if network != "mnist-cnn":
        recipe = load_recipe(ROOT / "examples" / f"{network}.py")
        tested = {"ordinary": recipe.module.test_data()[0], "foreign": recipe.module.ood_data()[0]}
        return Problem(recipe.model(), recipe.module.train_data(), recipe.module.calibration_data(), tested)
    pixels, digits, new = images("mnist", "train"), labels("mnist", "train"), images("mnist", "t10k")[:TESTED]
    held_out = slice(TRAINED, TRAINED + HELD_OUT)
    train = normalise(pixels[:TRAINED]), digits[:TRAINED]
    tested = {"ordinary": new, "rotated by 90 degrees": rotate(new, 90), "Fashion-MNIST": _fashion()}
    return Problem(
        trained("cnn", 0, *train, EPOCHS, "cascade"),
        train,
        (normalise(pixels[held_out]), digits[held_out]),
        {name: normalise(inputs) for name, inputs in tested.items()},
    )


def _fashion() -> Tensor:
    return images("fashion-mnist", "t10k")[:TESTED]
