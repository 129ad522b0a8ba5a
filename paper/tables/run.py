"""The paper's UCI tables: subnetworks of large networks against full covariances of small ones.

Daxberger et al. (ICML 2021), figure 3 and appendix "UCI Experiments". Log-likelihoods are in the original units of the
targets.
"""

from dataclasses import asdict
from typing import Any

import torch

from benchmarks.core.settings import Settings, Values
from benchmarks.datasets.uci import splits
from benchmarks.experiments.kept import run_once
from paper.regression_networks import Patience, Shape
from paper.tables.data import load
from paper.tables.network import SHAPES, Limits, one_network
from paper.tables.posterior import Search, climb, whole_grid

PROBLEMS = tuple(f"{dataset}-{kind}" for dataset in ("wine", "kin8nm", "protein") for kind in ("standard", "gap"))
LARGE = "protein"  # trains for fewer epochs
PATIENCE, PATIENCE_OF_LARGE = Patience(2000, 500), Patience(500, 125)
FAST_SPLITS = 3
SEARCHES: dict[str, Search] = {"whole grid": whole_grid, "climb": climb}


def limits_of(problem: str, settings: Settings) -> Limits:
    """Epochs and rows of a run."""
    full = PATIENCE_OF_LARGE if problem.startswith(LARGE) else PATIENCE
    patience = settings.scale(full, full, Patience(3, 3))
    return Limits(patience, settings.scale(None, 1000, 100), settings.scale(None, 2000, 100))


def remembered(problem: str, shape: Shape, number: int, limits: Limits, search: str) -> dict[str, Any]:
    """The outcome of `one_network`, from the cache where an interrupted run left it."""
    scale = {**asdict(limits), "search": search}
    label = f"paper-uci-{problem}-{number}-{shape.name}-{limits.patience.epochs}-{search.replace(' ', '-')}"
    dataset, kind = problem.split("-")
    return run_once(
        label, scale, lambda: one_network(load(dataset, kind, number), shape, number, limits, SEARCHES[search])
    )


def run(settings: Settings) -> Values:
    """Train and score what is not in the cache, on one thread."""
    torch.set_num_threads(1)
    names = settings.names(PROBLEMS, PROBLEMS[:1])
    search = settings.scale("whole grid", "climb", "climb")
    shapes = settings.scale(SHAPES, SHAPES, SHAPES[:2])
    counts = {name: splits(*name.split("-")) for name in names}
    most = settings.seeds or settings.scale(max(counts.values()), FAST_SPLITS, 2)
    runs = [
        remembered(name, shape, number, limits_of(name, settings), search)
        for name in names
        for number in range(min(most, counts[name]))
        for shape in shapes
    ]
    return {"setting": _setting(settings, search, runs), "runs": runs}


def _setting(settings: Settings, search: str, runs: list[dict[str, Any]]) -> dict[str, Any]:
    """What --fast leaves out, and how long the networks took, those from an interrupted run included."""
    limits = limits_of(PROBLEMS[0], settings)
    return {
        "prior_search": f"{search}, for each network, strategy and size, by the validation log-likelihood",
        "seconds_of_networks": sum(run["seconds"] for run in runs),
        "fast_leaves_out": settings.scale(
            [],
            [
                f"all but the first {settings.seeds or FAST_SPLITS} splits of each table and kind",
                f"all but {limits.validation_rows} random validation rows for the choice of lambda",
                f"all but {limits.test_rows} random test rows",
                "values of lambda: the search climbs from neighbour to neighbour and does not try the whole grid",
            ],
            ["nearly everything"],
        ),
    }
