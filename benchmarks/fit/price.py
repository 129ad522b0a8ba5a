"""What a prediction costs, in forward passes of the plain network in onnxruntime: everything that a request computes.

The networks but the digits' are not trained: the price depends on the network and on where the weights lie.
"""

import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.core.folders import ROOT
from benchmarks.core.harness import call
from benchmarks.core.plain import plain_network
from benchmarks.core.settings import Settings, Values
from benchmarks.experiments.frontier.networks import DigitNetwork
from benchmarks.fit.networks.zoo import NetworkSpec, network_spec
from demur.offline.config import FitConfig
from demur.offline.fit import fit_bundle
from demur.offline.recipes.load import load_recipe
from demur.service.inference.predictor import Predictor

BATCHES = (1, 16)
TRAINED, HELD_OUT = 64, 40
ROUNDS, ROUND_SECONDS = 9, 0.05
LEAST_TICK = 1e-9


@dataclass(frozen=True)
class Row:
    """One network and the choice of its weights."""

    name: str
    network: str
    weights: int
    selection: str
    within: tuple[str, ...] | None = None
    outputs: int = 10


ROWS = (
    Row("digits auto", "digits", 500, "auto"),
    Row("digits anywhere", "digits", 500, "random"),
    Row("digits last layer", "digits", 5130, "last-layer"),
    Row("MNIST CNN auto", "mnist-cnn", 750, "auto"),
    Row("ResNet-18 auto", "resnet18", 2000, "auto"),
    Row("BERT auto", "bert", 2000, "auto", outputs=4),
    Row("ResNet-18 last block", "resnet18", 2000, "random", ("layer4", "head")),
    Row("ResNet-18 anywhere", "resnet18", 2000, "random"),
)
NAMES, QUICK = tuple(row.name for row in ROWS), ("digits auto",)


def run(settings: Settings) -> Values:
    """One process for each row; it fits with all threads, and predicts with one."""
    names = settings.names(NAMES, QUICK)
    chosen = [row for row in ROWS if row.name in names]
    rows = [
        {**asdict(row), **call("benchmarks.fit.price:one", asdict(row), settings.threads)}
        for row in settings.track(chosen, "Price", len(chosen))
    ]
    return {"rows": settings.with_earlier("price", "name", rows, NAMES)}


def one(values: dict[str, Any]) -> dict[str, Any]:
    """Fit the row's bundle, and time its predictions."""
    row = Row(**{name: value for name, value in values.items() if name != "threads"})
    model, train, held_out, examples = problem(row.network, row.outputs)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "bundle"
        config = FitConfig(
            subnetwork_size=row.weights,
            selection=row.selection,  # type: ignore[arg-type]
            within=row.within,
        )
        fit_bundle(model, train, folder, calibration_loader=held_out, config=config)
        predictor, mean = Predictor.load(folder, threads=1), plain_network(folder, 1)
    manifest = predictor.manifest
    return {
        "chosen": manifest.selection.explanation,
        "S": manifest.subnetwork_size,
        "D": manifest.parameter_count,
        "batches": [timed(predictor, mean, examples[:batch].numpy()) for batch in BATCHES],
    }


def problem(network: str, outputs: int) -> tuple[nn.Module, Any, Any, Tensor]:
    """The model, its training and held-out data, and at least 16 examples to predict."""
    if network == "digits":
        recipe = load_recipe(ROOT / "examples" / "digits.py")
        return recipe.model(), recipe.data("train_data"), recipe.data("calibration_data"), recipe.module.test_data()[0]
    torch.manual_seed(0)
    own = NetworkSpec(lambda _: DigitNetwork(), (1, 28, 28), 10)
    spec = replace(own if network == "mnist-cnn" else network_spec(network, "full"), outputs=outputs)
    model, (inputs, targets) = spec.model(), spec.data(TRAINED + HELD_OUT)
    if spec.vocabulary is None:
        inputs = torch.rand(inputs.shape)
    train, held_out = (inputs[:TRAINED], targets[:TRAINED]), (inputs[TRAINED:], targets[TRAINED:])
    return model, [train], [held_out], inputs


def seconds_of(work: Callable[[], object], count: int) -> float:
    """Seconds of this thread's processor for one call, on average; other programs do not count."""
    start = time.thread_time()
    for _ in range(count):
        work()
    return max((time.thread_time() - start) / count, LEAST_TICK)


def timed(predictor: Predictor, mean: Callable[[Any], object], inputs: Any) -> dict[str, Any]:
    """Seconds for the batch, and their ratios: the plain network, mean and variance, and the whole prediction."""
    works: dict[str, Callable[[], object]] = {
        "plain": lambda: mean(inputs),
        "variance": lambda: predictor.graph.outputs(inputs),
        "predict": lambda: predictor.predict(inputs),
    }
    counts = {
        name: max(1, round(ROUND_SECONDS / max(seconds_of(work, 1) for _ in range(3)))) for name, work in works.items()
    }
    rounds = [{name: seconds_of(work, counts[name]) for name, work in works.items()} for _ in range(ROUNDS)]
    return {
        "batch": len(inputs),
        "seconds": {name: statistics.median(each[name] for each in rounds) for name in works},
        "graph_over_plain": statistics.median(each["variance"] / each["plain"] for each in rounds),
        "predict_over_plain": statistics.median(each["predict"] / each["plain"] for each in rounds),
    }
