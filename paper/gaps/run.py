"""Every method on one network for each gap: log-likelihood, 95 % intervals and rejection, inside the gap and outside.

The networks are the largest of the paper's UCI experiment, 2 x 100 ReLU units, and of its toys, 2 x 50.
"""

import copy
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.core.settings import Settings, Values
from benchmarks.experiments.kept import run_once, trained_once
from paper.fitted import Problem
from paper.gaps import bundles
from paper.gaps.data import TABLES, TOYS, GapSplit, load, splits
from paper.gaps.methods import (
    Method,
    ensemble,
    held_out_noise,
    laplace,
    likeliest_added_weights,
    noise_alone,
    rejecting,
)
from paper.gaps.quality import picture, quality
from paper.regression_networks import (
    GaussianModel,
    Patience,
    Shape,
    train_network,
    without_biases,
)
from paper.tables.network import UciFitted, orders

SHAPE, TOY_SHAPE = Shape(100, 2), Shape(50, 2)
LARGE = "protein"  # trains for fewer epochs, and has no row of the paper's posteriors
SIZE, MEMBERS, FAST_SPLITS = 1000, 5, 3
PATIENCE, PATIENCE_OF_LARGE, QUICK = Patience(2000, 500), Patience(500, 125), Patience(3, 3)


def trained(split: GapSplit, number: int, member: int, patience: Patience) -> UciFitted:
    """Network `member` of a split, from the cache where it is there."""
    draw, shape = 100 * number + member, TOY_SHAPE if split.name in TOYS else SHAPE
    model = GaussianModel(shape.network(split.train.x.shape[1], draw))
    train, validation = split.train.tensors(), split.validation.tensors()
    trained_once(
        f"paper-gaps-{split.name}-{number}-{member}-{shape.name}-{patience.epochs}",
        model,
        lambda: train_network(model, train, validation, patience, draw),
    )
    problem = Problem(split.name, split.train.x, split.train.y, {})
    return UciFitted(model.network, problem, number, float(model.log_sigma.detach().exp()))


def methods(split: GapSplit, number: int, patience: Patience, folder: Path) -> Iterator[tuple[str, Method]]:
    """Name of a row -> its method, one after the other: each holds large matrices."""
    members = [trained(split, number, member, patience) for member in range(MEMBERS)]
    fitted, train, validation = members[0], split.train, split.validation
    network = fitted.model
    yield "MAP", noise_alone(network, fitted.sigma)
    yield "noise alone", noise_alone(network, held_out_noise(network, validation))
    yield "ensemble of 5", rejecting(ensemble(members), validation)
    if split.name != LARGE:
        over_weights = replace(fitted, model=without_biases(copy.deepcopy(network)))
        curvature = over_weights.curvature()
        chosen = orders(over_weights, curvature.diagonal)["wasserstein"][: min(SIZE, over_weights.total)]
        everything = torch.arange(over_weights.total)
        yield "wasserstein", rejecting(laplace(over_weights, curvature, chosen, validation), validation)
        yield "full covariance", rejecting(laplace(over_weights, curvature, everything, validation), validation)
    control = likeliest_added_weights(network, train, validation, number)
    yield "added weights, likeliest", rejecting(control, validation)
    for place, (label, options) in enumerate(bundles.OPTIONS.items()):
        yield label, bundles.bundle(network, split, options, folder / str(place), number)


def one_split(split: GapSplit, number: int, patience: Patience, most: int | None) -> dict[str, Any]:
    """Quality of every method on at most so many rows of each kind; the intervals of a toy."""
    found: dict[str, Any] = {}
    pictures: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as scratch:
        for label, method in methods(split, number, patience, Path(scratch)):
            found[label] = quality(method, split, most) | {"facts": dict(method.facts)}
            if split.name in TOYS and number == 0:
                pictures[label] = picture(method, split)
    return {"problem": split.name, "split": number, "examples": len(split.train.x), "methods": found} | (
        {"picture": pictures} if pictures else {}
    )


def remembered(name: str, number: int, patience: Patience, most: int | None) -> dict[str, Any]:
    """The outcome of `one_split`, from the cache where an interrupted run left it."""
    scale = {"epochs": patience.epochs, "patience": patience.patience, "rows": most}
    label = f"paper-gaps-{name}-{number}-{patience.epochs}"
    return run_once(label, scale, lambda: one_split(load(name, number), number, patience, most))


def run(settings: Settings) -> Values:
    """Train and judge what is not in the cache, on one thread; `--rows` names tables and toys."""
    torch.set_num_threads(1)
    every = (*TOYS, *TABLES)
    named = settings.names(every, TOYS[:1])
    names = named if settings.rows else settings.scale(every, (*TOYS, *TABLES[:2]), TOYS[:1])
    most = settings.scale(None, 2000, 100)
    runs = []
    for name in names:
        full = PATIENCE_OF_LARGE if name == LARGE else PATIENCE
        patience = settings.scale(full, full, QUICK)
        wanted = settings.seeds or settings.scale(splits(name), FAST_SPLITS, 1)
        runs += [remembered(name, number, patience, most) for number in range(min(wanted, splits(name)))]
    runs = with_earlier(runs, settings.earlier("gaps", "runs") or [], every)
    setting = {"seconds_of_networks": float(np.sum([one["seconds"] for one in runs])), "rows_at_most": most}
    return {"setting": setting, "runs": runs}


def with_earlier(runs: list[Values], earlier: list[Values], order: tuple[str, ...]) -> list[Values]:
    """The runs, and those of the last result of data sets that were not measured again, in order."""
    again = {one["problem"] for one in runs}
    every = [*runs, *(one for one in earlier if one["problem"] not in again)]
    return sorted(every, key=lambda one: (order.index(one["problem"]), one["split"]))
