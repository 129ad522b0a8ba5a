"""Quality against price: bundles by strategy and place, and the usual methods, on the same trained networks.

Quality is judged by kinds of shift that no strategy of ours sees while it chooses, by rotation, and by foreign images.
Every method has the same training images; Laplace methods take part of them for the curvature.
"""

import json
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.core.settings import Settings, Values
from benchmarks.experiments.corruptions import UNSEEN
from benchmarks.experiments.frontier import methods
from benchmarks.experiments.frontier.data import Problem, load
from benchmarks.experiments.frontier.networks import EPOCHS, trained
from benchmarks.experiments.kept import run_once
from offline.evaluation.auroc import auroc
from offline.runtime.progress import Track
from service.maths.predictive import entropy

Array = npt.NDArray[Any]
NETWORKS = ("mnist", "cifar")
SEEDS = 3


@dataclass(frozen=True)
class Scale:
    """How many images: for the curvature, in each test set, to train on; and epochs (None: as many as needed)."""

    curvature: int = 10_000
    test: int = 2000
    train: int | None = None
    epochs: int | None = None


FULL = {"mnist": Scale(), "cifar": Scale(curvature=4000, test=1000)}
QUICK = dict.fromkeys(NETWORKS, Scale(curvature=400, test=60, train=1500, epochs=1))


def scores(method: methods.Method, problem: Problem) -> dict[str, Any]:
    """Log-likelihood on every test set, and how well the predictive entropy tells foreign images from usual ones."""
    classes = problem.classes.numpy()
    found = {name: method.probabilities(x) for name, x in problem.tests.items()}
    usual = entropy(found["usual"])
    return {
        "price": method.price,
        "accuracy": float((found["usual"].argmax(1) == classes).mean()),
        "log_likelihood": {name: log_likelihood(p, classes) for name, p in found.items()},
        "auroc": {name: auroc(usual, entropy(method.probabilities(x))) for name, x in problem.foreign.items()},
        **method.facts,
    }


def log_likelihood(probabilities: Array, classes: Array) -> float:
    """Mean log-probability of the true class, nats."""
    chosen = probabilities[np.arange(len(classes)), classes].astype(np.float64)
    return float(np.log(np.maximum(chosen, np.finfo(np.float64).tiny)).mean())


def one_network(name: str, seed: int, scale: Scale, tag: str, track: Track) -> dict[str, Any]:
    """All methods on the network of one seed; an ensemble's other members come from the seeds behind it.

    What an interrupted run of the same scale left in the cache is not computed again.
    """
    problem = load(name, scale.test)
    if scale.train is not None:
        inputs, targets = problem.train
        problem = Problem(**{**vars(problem), "train": (inputs[: scale.train], targets[: scale.train])})
    epochs = scale.epochs or EPOCHS[name]
    members = [trained(problem, seed + k, 0.0, tag, epochs, track) for k in range(methods.MEMBERS)]
    dropped = trained(problem, seed, methods.DROPOUT, tag, epochs, track)
    model, rows = members[0], {}
    with tempfile.TemporaryDirectory() as scratch:
        made: dict[str, Callable[[], methods.Method]] = {
            "plain network": lambda: methods.plain(model),
            "MC dropout, 16 samples": lambda: methods.dropout(dropped),
            "ensemble of 5": lambda: methods.ensemble(members),
            "last layer, laplace-torch": lambda: methods.last_layer_laplace(model, problem, scale.curvature),
        }
        for label, options in methods.OURS.items():
            folder = Path(scratch) / f"bundle-{len(made)}"
            made[label] = _fitted(model, problem, options, folder, scale.curvature)
        for label, make in track(list(made.items()), f"{name}, seed {seed}: methods", len(made)):
            key = f"frontier-{name}-{seed}-{tag}-{label}".replace(" ", "-").replace(",", "")
            settings = asdict(scale) | {"epochs": epochs, "options": methods.OURS.get(label, {})}
            rows[label] = run_once(key, json.loads(json.dumps(settings)), _scored(make, problem))
    return {"network": name, "seed": seed, "weights": sum(p.numel() for p in model.parameters()), "methods": rows}


def _scored(make: Callable[[], methods.Method], problem: Problem) -> Callable[[], dict[str, Any]]:
    return lambda: scores(make(), problem)


def _fitted(
    model: Any, problem: Problem, options: dict[str, Any], folder: Path, examples: int
) -> Callable[[], methods.Method]:
    inputs, targets = problem.train
    return lambda: methods.ours(model, (inputs[:examples], targets[:examples]), problem.held_out, options, folder)


def summarise(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """For each network and method: price, log-likelihoods and AUROC, mean and standard deviation over the seeds."""
    summary: dict[str, Any] = {}
    for name in dict.fromkeys(run["network"] for run in runs):
        own = [run["methods"] for run in runs if run["network"] == name]
        summary[name] = {label: _spread_of([methods[label] for methods in own]) for label in own[0]}
    return summary


def _spread_of(rows: list[dict[str, Any]]) -> dict[str, Any]:
    quantities: dict[str, Callable[[dict[str, Any]], float]] = {
        "price": lambda row: row["price"],
        "usual": lambda row: row["log_likelihood"]["usual"],
        "unseen": lambda row: _mean_of(row, tuple(UNSEEN)),
        "rotation": lambda row: _mean_of(row, tuple(n for n in row["log_likelihood"] if n.startswith("rotation"))),
        "shifted": lambda row: _mean_of(row, tuple(n for n in row["log_likelihood"] if n != "usual")),
        "auroc": lambda row: float(np.mean(list(row["auroc"].values()))),
    }
    found = {name: [quantity(row) for row in rows] for name, quantity in quantities.items()}
    return {
        name: {"mean": float(np.mean(values)), "std": float(np.std(values))}
        for name, values in found.items()
        if not np.isnan(values).any()
    }


def _mean_of(row: dict[str, Any], names: tuple[str, ...]) -> float:
    return float(np.mean([row["log_likelihood"][name] for name in names])) if names else float("nan")


def run(settings: Settings) -> Values:
    """Train and score what is not in the cache; `--rows mnist` runs one of the networks."""
    names, (scales, tag) = settings.names(NETWORKS, NETWORKS), settings.choose((FULL, "full"), (QUICK, "quick"))
    seeds = settings.choose(settings.seeds or SEEDS, 1)
    runs = [one_network(name, seed, scales[name], tag, settings.track) for name in names for seed in range(seeds)]
    earlier = settings.earlier("frontier", "runs") or []
    runs = [*(run for run in earlier if run["network"] not in names), *runs]
    return {"summary": summarise(runs), "runs": runs}
