"""Every method at every shift of one problem, for several seeds: resumable, one outcome a method and seed."""

import json
import tempfile
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

from benchmarks.core.harness import MeasurementError
from benchmarks.core.settings import Settings, Values
from benchmarks.experiments.frontier.methods import Method, ratio, softmax
from benchmarks.experiments.kept import run_once, with_earlier
from paper.images.problems import PROBLEMS
from paper.images.quality import REJECTED, score
from paper.images.rows import EVERYTHING, OURS, Row, one_batch, rows
from paper.images.summary import OURS_BY_PAPER, RANDOM
from paper.images.trained import Networks, Scale

FULL = {
    "mnist": Scale("ResNet-18, grey", 58_000, 10_000, 10_000, 42_438, 90, 3, 20, schedule=(40, 70)),
    "cifar": Scale("ResNet-18", 48_000, 10_000, 10_000, 42_438, 300, 3, 20, schedule=(150, 225)),
}
FAST = {
    "mnist": Scale("small CNN", 58_000, 1_000, 4_000, 1_000, 3, 3, 5, everything=True),
    "cifar": Scale("narrow ResNet", 20_000, 640, 2_000, 1_000, 6, 1, 3),
}
QUICK = {
    "mnist": Scale("small CNN", 1_000, 48, 200, 100, 1, 1, 1),
    "cifar": Scale("narrow ResNet", 400, 48, 100, 100, 1, 1, 1),
}
QUICK_ROWS = ("MAP", "ensemble of 5", "SWAG", OURS_BY_PAPER, RANDOM)
IN_BUNDLES = frozenset({*OURS, EVERYTHING})  # prices of onnxruntime


def run(name: str, settings: Settings, deep: str = "") -> Values:
    """One of `PROBLEMS`; deep: the network in place of the scale's own at full size."""
    torch.set_num_threads(settings.threads)
    scale: Scale = settings.scale(FULL, FAST, QUICK)[name]
    if deep and scale is FULL[name]:
        scale = replace(scale, network=deep)
    tag = settings.scale("full", "fast", "quick")
    kept = _earlier(f"{name}_resnet50" if deep else name, scale, settings)
    problem = PROBLEMS[name](scale.train, scale.test)
    runs: list[dict[str, Any]] = []
    for seed in range(settings.seeds or scale.seeds):
        networks = Networks(problem, scale, seed, tag, settings.track)
        runs.append({"seed": seed, "methods": one_seed(networks, settings.rows or settings.scale((), (), QUICK_ROWS))})
    runs = with_earlier(runs, kept, (*rows(networks, settings.scratch), EVERYTHING))
    return {
        "published": problem.published,
        "scale": asdict(scale),
        "weights": sum(p.numel() for p in networks.model.parameters()),
        "rejected": REJECTED.tolist(),
        "seconds_of_work": sum(row["seconds"] for run in runs for row in run["methods"].values()),
        "runs": runs,
    }


def _earlier(stem: str, scale: Scale, settings: Settings) -> list[dict[str, Any]]:
    """The runs of the last result, where only some rows are measured now; `MeasurementError` for another size."""
    last = settings.earlier(stem, "scale") or {}
    differing = [key for key, value in last.items() if json.loads(json.dumps(asdict(scale)))[key] != value]
    if differing:
        raise MeasurementError(
            f"--rows: found a last result with another {' and '.join(differing)}, expected the same size; measure all "
            "rows again, or move the result away"
        )
    if not last:
        return []
    commit = {"commit": settings.earlier(stem, "environment")["git_commit"]}  # of rows that do not name their own
    return [
        run | {"methods": {label: commit | row for label, row in run["methods"].items()}}
        for run in settings.earlier(stem, "runs")
    ]


def one_seed(networks: Networks, only: tuple[str, ...]) -> dict[str, Any]:
    """Name of a row -> its quality and its price; `only` these, where any are named."""
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as scratch:
        every = rows(networks, Path(scratch))
        named = {without_commas(label) for label in (*every, EVERYTHING)}
        if unknown := [label for label in only if without_commas(label) not in named]:
            raise MeasurementError(
                f"--rows: found {', '.join(unknown)}, expected some of {', '.join(sorted(named))} "
                "(names without their commas)"
            )
        wanted = {without_commas(label) for label in only or named}
        made = {label: row for label, row in every.items() if without_commas(label) in wanted}
        for label, row in networks.track(list(made.items()), f"seed {networks.seed}: methods", len(made)):
            depends = asdict(networks.scale) | {"settings": dict(row.settings)}
            depends |= {"foreign": list(networks.problem.foreign), "test": len(networks.problem.classes)}
            found[label] = run_once(networks.key(label), depends, _scored(networks, label, row))
    return found


def without_commas(label: str) -> str:
    """As `--rows`, which separates names by commas, has the names of rows."""
    return label.replace(",", "").strip()


def _scored(networks: Networks, label: str, row: Row) -> Callable[[], dict[str, Any]]:
    def run() -> dict[str, Any]:
        method = row.make()
        if label not in IN_BUNDLES:
            method = replace(method, price=measured_price(method, networks))
        return score(method, networks.problem) | {"price": method.price, **method.facts}

    return run


def measured_price(method: Method, networks: Networks) -> float:
    """Time of a batch of 16 in torch over that of the plain network."""
    x = one_batch(networks.problem)
    model = networks.model
    return ratio(lambda: method.probabilities(x), lambda: softmax(model, x))
