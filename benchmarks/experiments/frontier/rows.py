"""The methods that are compared, by name: one network, networks beside it, and bundles."""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch import nn

from benchmarks.experiments.frontier import methods
from benchmarks.experiments.frontier.data import Problem
from benchmarks.experiments.frontier.distances import distance_scaled
from benchmarks.experiments.frontier.methods import Examples, Method
from benchmarks.experiments.frontier.temperatures import Logits, at, tempered
from demur.offline.config import FitConfig
from demur.offline.data.held_out import TUNING_SHARE, HeldOut

Make = Callable[[], Method]
PLAIN = "plain network"
BEST, SPENT = "best temperature", "temperature, 0.005 nats"
DEFAULT = "default bundle"
BUDGET = 0.005  # nats, of what is no default bundle
NO_SUBNETWORK = 1e12  # a prior precision that leaves one weight no variance
SIZE = {"subnetwork_size": 750}
BUNDLES: dict[str, dict[str, Any]] = {
    DEFAULT: {},
    "default, 0.02 nats": {"uncertainty_budget": 0.02},
    "added weights alone": {
        "selection": "random",
        "within": ("head",),
        "subnetwork_size": 1,
        "prior_precision": NO_SUBNETWORK,
    },
    "subnetwork alone": {**SIZE, "added_weights": False, "uncertainty_budget": BUDGET, "temperature": "fit"},
    "subnetwork alone, 0.05 nats, T = 1": {**SIZE, "added_weights": False},
}
DISTANCES, DROPOUT = "distances scale the temperature", "MC dropout, 16 samples"
ENSEMBLE, BEST_ENSEMBLE = "ensemble of 5", "ensemble of 5, best temperature"
LAPLACE = "last layer, laplace-torch"
METHODS = (PLAIN, BEST, SPENT, DISTANCES, DROPOUT, ENSEMBLE, BEST_ENSEMBLE, *BUNDLES, LAPLACE)


def rows(network: Callable[..., nn.Module], problem: Problem, examples: int, folder: Path) -> dict[str, Make]:
    """All of `METHODS`. network: from a number and a share of dropout, of which (0) is judged; examples: how many
    training images a fit reads; folder: for bundles.

    What is chosen on held-out images is chosen on the half that tunes a bundle.
    """
    model = network(0)
    own, half = [Logits(model)], HeldOut(*problem.held_out).split(TUNING_SHARE, FitConfig().seed, by_class=True)[0]
    held_out: Examples = (half.inputs, half.targets)
    train = problem.train[0][:examples], problem.train[1][:examples]

    @functools.cache
    def members() -> list[Logits]:
        return [*own, *(Logits(network(number)) for number in range(1, methods.MEMBERS))]

    found: dict[str, Make] = {
        PLAIN: lambda: at(own, 1.0),
        BEST: lambda: tempered(own, held_out),
        SPENT: lambda: tempered(own, held_out, BUDGET),
        DISTANCES: lambda: distance_scaled(model, own[0], train, held_out, BUDGET),
        DROPOUT: lambda: methods.dropout(network(0, methods.DROPOUT)),
        ENSEMBLE: lambda: at(members(), 1.0),
        BEST_ENSEMBLE: lambda: tempered(members(), held_out),
    }
    for label, options in BUNDLES.items():
        found[label] = _fitted(model, problem, train, options, folder / f"bundle-{len(found)}")
    found[LAPLACE] = lambda: methods.last_layer_laplace(model, problem, examples)
    return found


def _fitted(model: nn.Module, problem: Problem, train: Examples, options: dict[str, Any], folder: Path) -> Make:
    return lambda: methods.ours(model, train, problem.held_out, options, folder)
