"""Quality against price: the default bundle, what it is made of, and other methods on the same trained networks.

Every method has the same training images; Laplace methods take part of them for the curvature, and whatever is chosen
on held-out images is chosen on the same ones. Quality is judged on usual images, under rotation and under kinds of
shift that no strategy of ours sees while it chooses, and by foreign images.
"""

import functools
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from benchmarks.core.settings import Settings, Values
from benchmarks.experiments.corruptions import ROTATIONS, UNSEEN
from benchmarks.experiments.frontier.data import NAMES, Problem, load
from benchmarks.experiments.frontier.networks import EPOCHS, trained
from benchmarks.experiments.frontier.quality import scores
from benchmarks.experiments.frontier.rows import BUNDLES, METHODS, Make, rows
from benchmarks.experiments.frontier.temperatures import Logits
from benchmarks.experiments.kept import run_once, with_earlier
from demur.offline.runtime.progress import Track

NETWORKS = NAMES
SEEDS = 3
SHIFTED = tuple(UNSEEN)
Row = dict[str, Any]


@dataclass(frozen=True)
class Scale:
    """How many images: for the curvature, in each test set, to train on; and epochs (None: as many as needed)."""

    curvature: int = 10_000
    test: int = 2000
    train: int | None = None
    epochs: int | None = None


FULL = dict.fromkeys(NETWORKS, Scale())
QUICK = dict.fromkeys(NETWORKS, Scale(curvature=400, test=60, train=1500, epochs=1))


def problem_of(name: str, scale: Scale) -> Problem:
    """The images of one of `NETWORKS`, so many of them."""
    problem = load(name, scale.test)
    inputs, targets = problem.train
    return replace(problem, train=(inputs[: scale.train], targets[: scale.train]))


def one_network(name: str, seed: int, scale: Scale, tag: str, wanted: Sequence[str], track: Track) -> dict[str, Any]:
    """The wanted methods on the network of one seed; an ensemble's other members come from the seeds behind it.

    What an interrupted run of the same scale left in the cache is not computed again.
    """
    problem = problem_of(name, scale)
    epochs = scale.epochs or EPOCHS[name]

    @functools.cache
    def network(number: int, dropout: float = 0.0) -> nn.Module:
        return trained(problem, seed + number, dropout, tag, epochs, track)

    model, found = network(0), {}
    logits = Logits(model)
    with tempfile.TemporaryDirectory() as scratch:
        made = rows(network, problem, scale.curvature, Path(scratch))
        chosen = {label: made[label] for label in made if label in wanted}
        for label, make in track(list(chosen.items()), f"{name}, seed {seed}: methods", len(chosen)):
            key = f"frontier-{name}-{seed}-{tag}-{label}".replace(" ", "-").replace(",", "")
            settings = asdict(scale) | {"epochs": epochs, "options": BUNDLES.get(label, {})}
            found[label] = run_once(key, settings, _scored(make, problem, logits))
    return {"network": name, "seed": seed, "weights": sum(p.numel() for p in model.parameters()), "methods": found}


def _scored(make: Make, problem: Problem, logits: Logits) -> Callable[[], Row]:
    return lambda: scores(make(), problem, logits)


def summarise(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """For each network and method, how many seeds it was measured on, and of each of `QUANTITIES` that it has, mean and
    standard deviation over these."""
    summary: dict[str, Any] = {}
    for name in dict.fromkeys(run["network"] for run in runs):
        own = [run["methods"] for run in runs if run["network"] == name]
        found = {label: [methods[label] for methods in own if label in methods] for label in own[0]}
        summary[name] = {label: {"seeds": len(rows), **_spread_of(rows)} for label, rows in found.items()}
    return summary


def _spread_of(found: list[Row]) -> dict[str, Any]:
    values = {name: [quantity(row) for row in found] for name, quantity in QUANTITIES.items()}
    return {
        name: {"mean": float(np.mean(each)), "std": float(np.std(each))}
        for name, each in values.items()
        if not np.isnan(each).any()
    }


def _of(part: str, names: tuple[str, ...]) -> Callable[[Row], float]:
    """The mean over test sets of log-likelihood, say; NaN where a row has none of them."""

    def mean(row: Row) -> float:
        known = [row[part][name] for name in names if name in row.get(part, {})]
        return float(np.mean(known)) if known else float("nan")

    return mean


def _foreign(part: str) -> Callable[[Row], float]:
    """Of the foreign images that the field compares with."""
    return lambda row: float(row[part][next(iter(row["auroc"]))]) if part in row else float("nan")


def _fact(name: str) -> Callable[[Row], float]:
    return lambda row: float(row.get(name, "nan"))


OBVIOUS = ("noise", "constant", "inverted", "scaled-by-10", "scaled-by-255", "shuffled-pixels")
QUANTITIES: dict[str, Callable[[Row], float]] = {
    "price": _fact("price"),
    "usual": _of("log_likelihood", ("usual",)),
    "rotation": _of("log_likelihood", tuple(ROTATIONS)),
    "unseen": _of("log_likelihood", SHIFTED),
    "ece": _of("ece", ("usual",)),
    "ece_rotation": _of("ece", tuple(ROTATIONS)),
    "ece_unseen": _of("ece", SHIFTED),
    "auroc": _foreign("auroc"),
    "score_auroc": _foreign("score_auroc"),
    "rejected_usual": _of("rejected", ("usual",)),
    "rejected_foreign": _foreign("rejected"),
    **{f"rejected_{name}": _of("rejected", (name,)) for name in OBVIOUS},
    "accuracy": _fact("accuracy"),
    "labels_differ": _fact("labels_differ"),
    "temperature": _fact("temperature"),
    "fit_seconds": _fact("fit_seconds"),
    "bytes": _fact("bytes"),
}


def run(settings: Settings) -> Values:
    """Train and score what is not in the cache; `--rows mnist` runs one of the networks, or one method on it:
    `--rows "mnist/default bundle"`, its name without commas."""
    every = {name: [(name, label) for label in METHODS] for name in NETWORKS}
    every |= {f"{name}/{label.replace(',', '')}": [(name, label)] for name in NETWORKS for label in METHODS}
    wanted: dict[str, list[str]] = {}
    for row in settings.names(tuple(every), NETWORKS):
        for name, label in every[row]:
            wanted.setdefault(name, []).append(label)
    scales, tag = settings.choose((FULL, "full"), (QUICK, "quick"))
    seeds = settings.choose(settings.seeds or SEEDS, 1)
    track = settings.track
    runs = [
        one_network(name, seed, scales[name], tag, labels, track)
        for name, labels in wanted.items()
        for seed in range(seeds)
    ]
    runs = with_earlier(runs, settings.earlier("frontier", "runs") or [], METHODS)
    runs.sort(key=lambda run: NETWORKS.index(run["network"]))
    return {"summary": summarise(runs), "runs": runs}
