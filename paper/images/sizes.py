"""Smaller and larger subnetworks (figure 5), and ensembles of growing size (appendix A.1), under the same shifts."""

import tempfile
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from benchmarks.core.settings import Settings, Values
from benchmarks.experiments.frontier.methods import Method
from benchmarks.experiments.kept import run_once
from paper.images.problems import PROBLEMS
from paper.images.quality import METRICS, score
from paper.images.rows import OURS, ensemble, first, subnetwork
from paper.images.run import FAST, FULL, QUICK, measured_price
from paper.images.summary import OURS_BY_PAPER, spread
from paper.images.trained import Networks, Scale

SIZES = {"full": (100, 1_000, 10_000, 42_438), "fast": (100, 300, 1_000, 3_000), "quick": (20, 50)}
MEMBERS = {"full": (1, 2, 5, 10, 15), "fast": (1, 2, 3, 5, 10), "quick": (1, 2)}
LARGEST_ENSEMBLE = {"mnist": 15, "cifar": 5}  # at the size for two cores, where photographs take long to learn


def run(settings: Settings) -> Values:
    """For each problem, log-likelihood by shift and memory of each size; `--rows mnist` measures one problem again."""
    torch.set_num_threads(settings.threads)
    tag = settings.scale("full", "fast", "quick")
    found: dict[str, dict[str, Any]] = settings.earlier("sizes", "problems") or {}
    for name in settings.names(tuple(PROBLEMS), ("mnist",)):
        scale: Scale = settings.scale(FULL, FAST, QUICK)[name]
        problem = PROBLEMS[name](scale.train, scale.test)
        seeds = range(settings.seeds or scale.seeds)
        runs = [one_seed(Networks(problem, scale, seed, tag, settings.track), tag) for seed in seeds]
        found[name] = {"scale": asdict(scale), "published": problem.published, "runs": runs}
    seconds = sum(
        row["seconds"]
        for one in found.values()
        for run in one["runs"]
        for kind in ("subnetworks", "ensembles")
        for row in run[kind].values()
    )
    return {"seconds_of_work": seconds, "problems": found}


def one_seed(networks: Networks, tag: str) -> dict[str, Any]:
    """Subnetworks and ensembles by their size."""
    most = LARGEST_ENSEMBLE[networks.problem.name] if tag == "fast" else max(MEMBERS[tag])
    subnetworks = {str(size): _kept(networks, f"S-{size}", _subnetwork(networks, size)) for size in SIZES[tag]}
    members = [count for count in MEMBERS[tag] if count <= most]
    ensembles = {str(count): _kept(networks, f"M-{count}", _ensemble(networks, count)) for count in members}
    return {"seed": networks.seed, "subnetworks": subnetworks, "ensembles": ensembles}


def _kept(networks: Networks, kind: str, make: Callable[[Path], Method]) -> dict[str, Any]:
    def scored() -> dict[str, Any]:
        with tempfile.TemporaryDirectory() as scratch:
            method = make(Path(scratch) / "bundle")
            return score(method, networks.problem) | {"price": method.price} | dict(method.facts)

    depends = asdict(networks.scale) | {"settings": OURS[OURS_BY_PAPER], "foreign": list(networks.problem.foreign)}
    return run_once(networks.key(kind), depends, scored)


def _subnetwork(networks: Networks, size: int) -> Callable[[Path], Method]:
    part = first(networks.problem.train, networks.scale.curvature)
    return lambda folder: subnetwork(networks, part, OURS[OURS_BY_PAPER], folder, size)


def _ensemble(networks: Networks, members: int) -> Callable[[Path], Method]:
    def make(_: Path) -> Method:
        method = ensemble(networks, members)
        return Method(method.probabilities, measured_price(method, networks), method.facts)

    return make


def summarise(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Kind and size -> metrics by shift, price and bytes: means and deviations over the seeds."""
    return {
        kind: {size: _row([one[kind][size] for one in runs]) for size in runs[0][kind]}
        for kind in ("subnetworks", "ensembles")
    }


def _row(found: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "shifts": {
            strength: {metric: spread([one["shifts"][strength][metric] for one in found]) for metric in METRICS}
            for strength in found[0]["shifts"]
        },
        **{name: spread([float(one[name]) for one in found]) for name in ("price", "bytes")},
    }
