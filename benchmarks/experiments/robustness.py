"""Is the default on an edge? Its constants varied by four, and what it is fitted to: how many examples, how even, how
right their labels are. Fashion-MNIST, a small convolutional network.

The held-out images are test images behind the first 2,000, on which everything is judged; so their number can vary
without another training. What a row costs and gains is measured against the best temperature on the same held-out
images.
"""

import contextlib
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.core.settings import Settings, Values
from benchmarks.datasets import mnist
from benchmarks.experiments.frontier import networks
from benchmarks.experiments.frontier.data import Problem, load
from benchmarks.experiments.frontier.methods import Examples, ours
from benchmarks.experiments.frontier.quality import scores
from benchmarks.experiments.frontier.run import OBVIOUS, SHIFTED
from benchmarks.experiments.frontier.temperatures import Logits, tempered
from benchmarks.experiments.kept import run_once, trained_once
from demur.offline.config import ADDED_BUDGET
from demur.offline.features import added_weights
from demur.offline.features.added_weights import FeatureSettings
from demur.offline.runtime.progress import Track

SEEDS, TEST, HELD_OUT, CURVATURE, EPOCHS = 3, 2000, 2000, 10_000, 5
STEPS = 4500  # of the training at least, however few the examples are
Features = Callable[[FeatureSettings], FeatureSettings]


@dataclass(frozen=True)
class Variation:
    """What is unlike the default: constants of the random features; options; examples held out, and trained on; the
    most frequent class over the rarest; the share of labels, in training and held out, that are drawn at random."""

    features: Features | None = None
    options: dict[str, Any] = field(default_factory=dict)
    held_out: int = HELD_OUT
    train: int | None = None
    imbalance: float = 1.0
    wrong: float = 0.0

    @property
    def trains(self) -> bool:
        """Whether it needs a network of its own."""
        return self.train is not None or self.imbalance != 1 or self.wrong > 0


def _scaled(name: str, factor: float) -> Features:
    def change(settings: FeatureSettings) -> FeatureSettings:
        value = getattr(settings, name)
        return replace(settings, **{name: type(value)(value * factor)})

    return change


VARIATIONS = {
    "default": Variation(),
    **{f"length scale times {f:g}": Variation(_scaled("length_scale", f)) for f in (0.25, 0.5, 2, 4)},
    **{f"features times {f:g}": Variation(_scaled("features", f)) for f in (0.5, 4)},
    **{f"eigenpairs times {f:g}": Variation(_scaled("kept", f)) for f in (0.25, 2)},
    **{f"precision times {f:g}": Variation(_scaled("precision", f)) for f in (0.25, 4)},
    **{f"budget times {f:g}": Variation(options={"uncertainty_budget": ADDED_BUDGET * f}) for f in (0.25, 4)},
    "head only": Variation(options={"added_weights": ["head"]}),
    "convolution and head": Variation(options={"added_weights": ["conv2", "head"]}),
    **{f"{n:,} held out": Variation(held_out=n) for n in (50, 200, 500, 5000)},
    **{f"{n:,} trained on": Variation(train=n) for n in (100, 1000, 10_000)},
    **{f"classes 1 to {n}": Variation(imbalance=n) for n in (10, 100)},
    "10 % of labels wrong": Variation(wrong=0.1),
}


def problem_of(variation: Variation, seed: int) -> Problem:
    """Fashion-MNIST as the variation has it."""
    problem = load("fashion", TEST)
    file = "fashion-mnist"
    x, y = mnist.normalise(mnist.images(file, "t10k")), mnist.labels(file, "t10k")
    held_out = x[TEST : TEST + variation.held_out], y[TEST : TEST + variation.held_out]
    draw = torch.Generator().manual_seed(seed)
    train = tuple(values[: variation.train] for values in problem.train)
    parts = [_mislabelled(_uneven((some[0], some[1]), variation, draw), variation, draw) for some in (train, held_out)]
    return replace(problem, train=parts[0], held_out=parts[1])


def _uneven(examples: Examples, variation: Variation, draw: torch.Generator) -> Examples:
    """Class k of K keeps a share of imbalance^(-k / (K - 1))."""
    x, y = examples
    keep = torch.rand(len(y), generator=draw) < variation.imbalance ** (-y / 9)
    return x[keep], y[keep]


def _mislabelled(examples: Examples, variation: Variation, draw: torch.Generator) -> Examples:
    x, y = examples
    other = torch.randint(0, 10, y.shape, generator=draw)
    return x, torch.where(torch.rand(len(y), generator=draw) < variation.wrong, other, y)


def network(label: str, problem: Problem, seed: int, track: Track, epochs: int | None) -> nn.Module:
    """Trained by the recipe of `frontier`, for as many steps where there are fewer examples; kept."""
    variation = VARIATIONS[label]
    name = f"robustness-{label if variation.trains else 'default'}-{seed}".replace(" ", "-").replace(",", "")
    name += "" if epochs is None else "-quick"
    torch.manual_seed(seed)
    model = networks.DigitNetwork()
    count = epochs or max(EPOCHS, min(200, STEPS * 128 // len(problem.train[0])))
    return trained_once(name, model, lambda: networks.train(model, "fashion", problem.train, count, seed, track))


@contextlib.contextmanager
def constants(change: Features | None) -> Iterator[None]:
    """With other constants of the random features, of the variance and of the score."""
    usual = added_weights.LINK_FEATURES, added_weights.SCORE_FEATURES
    try:
        if change is not None:
            added_weights.LINK_FEATURES, added_weights.SCORE_FEATURES = (change(settings) for settings in usual)
        yield
    finally:
        added_weights.LINK_FEATURES, added_weights.SCORE_FEATURES = usual


def one(label: str, seed: int, track: Track, epochs: int | None) -> Values:
    """Bundle and best temperature of one variation."""
    variation = VARIATIONS[label]
    problem = problem_of(variation, seed)
    model = network(label, problem, seed, track, epochs)
    logits = Logits(model)
    train = _first(problem.train, CURVATURE)
    with constants(variation.features), tempfile.TemporaryDirectory() as scratch:
        options = {"seed": seed, **variation.options}
        bundle = scores(ours(model, train, problem.held_out, options, Path(scratch) / "bundle"), problem, logits)
    temperature = scores(tempered([logits], problem.held_out), problem, logits)
    return {
        "label": label,
        "seed": seed,
        "accuracy": temperature["accuracy"],
        "cost": temperature["log_likelihood"]["usual"] - bundle["log_likelihood"]["usual"],
        "ece": bundle["ece"]["usual"],
        "ece_temperature": temperature["ece"]["usual"],
        "gain": _shifted(bundle, "log_likelihood") - _shifted(temperature, "log_likelihood"),
        "score_auroc": bundle["score_auroc"]["MNIST"],
        "rejected_usual": bundle["rejected"]["usual"],
        "rejected_foreign": bundle["rejected"]["MNIST"],
        "rejected_least": min(bundle["rejected"][name] for name in OBVIOUS),
        "labels_differ": bundle["labels_differ"],
    }


def _first(examples: tuple[Tensor, Tensor], count: int) -> Examples:
    return examples[0][:count], examples[1][:count]


def _shifted(found: Values, part: str) -> float:
    return float(np.mean([found[part][name] for name in SHIFTED]))


def summarise(runs: list[Values]) -> list[Values]:
    """A row for each variation: means over the seeds, and their standard errors."""
    rows = []
    for label in dict.fromkeys(run["label"] for run in runs):
        own = [run for run in runs if run["label"] == label]
        row: Values = {"label": label, "seeds": len(own)}
        for name in (name for name in own[0] if name not in ("label", "seed", "scale", "seconds", "commit")):
            values = [run[name] for run in own]
            row[name] = float(np.mean(values))
            row[f"{name}_error"] = float(np.std(values, ddof=1) / np.sqrt(len(own))) if len(own) > 1 else None
        rows.append(row)
    return rows


def run(settings: Settings) -> Values:
    """`--rows "head only"` measures one variation, by its name without commas; an interrupted run goes on."""
    labels = {label.replace(",", ""): label for label in VARIATIONS}
    names = settings.names(tuple(labels), ("default", "100 trained on"))
    seeds, epochs = settings.choose(settings.seeds or SEEDS, 1), settings.choose(None, 1)
    runs = [
        run_once(
            f"robustness-{name}-{seed}".replace(" ", "-").replace("%", "percent") + ("-quick" if epochs else ""),
            {"test": TEST, "epochs": epochs or EPOCHS},
            partial(one, labels[name], seed, settings.track, epochs),
        )
        for name in names
        for seed in range(seeds)
    ]
    return {"rows": settings.with_earlier("robustness", "label", summarise(runs), tuple(VARIATIONS))}
