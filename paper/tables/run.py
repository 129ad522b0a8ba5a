"""The paper's UCI tables: subnetworks of large networks against full covariances of small ones.

Daxberger et al. (ICML 2021), figure 3 and appendix "UCI Experiments". Log-likelihoods are in the original units of the
targets.
"""

from typing import Any

import torch

from benchmarks.core.settings import Settings, Values
from benchmarks.datasets.uci import splits
from benchmarks.experiments.kept import run_once
from paper.regression_networks import (
    BATCH,
    LEARNING_RATE,
    MOMENTUM,
    WEIGHT_DECAY,
    Patience,
    Shape,
)
from paper.tables.data import load
from paper.tables.network import LEVERAGE_EXAMPLES, SHAPES, Limits, one_network
from paper.tables.posterior import PRIOR_GRID, Search, climb, whole_grid

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
    scale = {
        "epochs": limits.patience.epochs,
        "patience": limits.patience.patience,
        "validation_rows": limits.validation_rows,
        "test_rows": limits.test_rows,
        "search": search,
    }
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
    """How the numbers came about, and what --fast leaves out."""
    limits = {name: limits_of(name, settings) for name in (PROBLEMS[0], PROBLEMS[-1])}
    first = limits[PROBLEMS[0]]
    return {
        "units": "mean log-likelihood per test example in nats, targets in their original units",
        "training": f"SGD {LEARNING_RATE:g}, momentum {MOMENTUM:g}, weight decay {WEIGHT_DECAY:g}, batch {BATCH}; "
        "noise learnt jointly; 15 % of the training rows are for validation; the best validation weights are kept",
        "epochs_and_patience": {name: [kept.patience.epochs, kept.patience.patience] for name, kept in limits.items()},
        "prior_grid": PRIOR_GRID,
        "prior_search": f"{search}, for each network, strategy and size, by the validation log-likelihood",
        "prior_scaling": "S / D",
        "selection": "wasserstein: by the diagonal of H, weights without curvature first; live: without these, as long "
        f"as there are others; leverage: of {LEVERAGE_EXAMPLES} training examples; random: all weights alike",
        "networks": len(runs),
        "seconds_of_networks": sum(run["seconds"] for run in runs),  # also of those from an interrupted run
        "rows_at_most": {"validation, for lambda": first.validation_rows, "test": first.test_rows},
        "fast_leaves_out": settings.scale(
            [],
            [
                f"all but the first {settings.seeds or FAST_SPLITS} splits of each table and kind",
                f"all but {first.validation_rows} random validation rows for the choice of lambda",
                f"all but {first.test_rows} random test rows",
                "values of lambda: the search climbs from neighbour to neighbour and does not try the whole grid",
            ],
            ["nearly everything"],
        ),
    }
