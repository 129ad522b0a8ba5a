"""The rows of the image experiments: every method on the networks of one seed."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from benchmarks.experiments.frontier import methods
from benchmarks.experiments.frontier.methods import Method
from demur.service.bundle import read_bundle
from paper.images.baselines import diagonal_laplace, swag
from paper.images.baselines import natural_gradient as variational
from paper.images.baselines.diagonal_laplace import DiagonalLaplace
from paper.images.baselines.point import (
    plain,
    state_bytes,
    tempered,
    tempered_ensemble,
)
from paper.images.on_device import predictive
from paper.images.problems import Examples, Problem
from paper.images.rejecting import by_entropy, of_bundle, rejection
from paper.images.summary import (
    ADDED,
    DEFAULT,
    OURS_BY_PAPER,
    PAPERS_RULE,
    RANDOM,
    RANDOM_BY_PAPERS_RULE,
    SMALL_TEMPERED,
    TEMPERED,
    TEMPERED_ENSEMBLE,
)
from paper.images.trained import Networks

BUDGET, SMALL_BUDGET = 0.05, 0.005  # nats of held-out log-likelihood; the small one is the default of `FitConfig`
# As the paper has it: a posterior over weights of the network alone, and no temperature.
PAPERS: dict[str, Any] = {"added_weights": False, "uncertainty_budget": BUDGET, "temperature": 1.0}
DROPOUT, MEMBERS = 0.1, 5
SWAG_SNAPSHOTS = 4  # of an epoch

OURS: dict[str, dict[str, Any]] = {
    OURS_BY_PAPER: {"selection": "wasserstein-swag", **PAPERS},
    PAPERS_RULE: {"selection": "wasserstein-swag", "prior_precision": "gridsearch", **PAPERS},
    RANDOM: {"selection": "random", **PAPERS},
    RANDOM_BY_PAPERS_RULE: {"selection": "random", "prior_precision": "gridsearch", **PAPERS},
    "last layer": {"selection": "last-layer", **PAPERS},
    # One chosen weight that its prior does not let move: the added weights have the whole budget.
    ADDED: {"selection": "random", "subnetwork_size": 1, "prior_precision": 1e12},
    DEFAULT: {"selection": "auto"},
}
EVERYTHING = "all weights, full covariance"


@dataclass(frozen=True)
class Row:
    """What makes the method, and what its outcome depends on beside the scale: kept outcomes of others do not count."""

    make: Callable[[], Method]
    settings: Mapping[str, Any] = field(default_factory=dict)


def rows(networks: Networks, folder: Path) -> dict[str, Row]:
    """Name of a row -> its method, in the order of the tables."""
    problem, scale = networks.problem, networks.scale
    part = first(problem.train, scale.curvature)
    laplace = DiagonalLaplace(networks.model, part, problem.held_out, networks.seed)
    walk = swag.Walk(scale.swag_epochs, SWAG_SNAPSHOTS, swag.RATES[0], networks.recipe.vary)
    data = swag.Data(problem.train, problem.held_out)
    found = {
        "MAP": Row(lambda: plain(networks.model)),
        TEMPERED: Row(lambda: tempered(networks.model, problem.held_out, BUDGET)),
        SMALL_TEMPERED: Row(lambda: _slightly_tempered(networks), {"rejects": "by entropy"}),
        "diagonal Laplace, sampled": Row(laplace.sampled, diagonal_laplace.SETTINGS),
        "diagonal Laplace, linearised": Row(lambda: laplace.linearised(0.0), diagonal_laplace.SETTINGS),
        "diagonal Laplace, within the budget": Row(lambda: laplace.linearised(BUDGET), diagonal_laplace.SETTINGS),
        "dropout": Row(lambda: _dropout(networks)),
        "ensemble of 5": Row(lambda: ensemble(networks, MEMBERS)),
        TEMPERED_ENSEMBLE: Row(lambda: tempered_ensemble(networks.members(MEMBERS), problem.held_out, BUDGET)),
        "SWAG": Row(lambda: swag.swag(networks.model, data, walk, networks.seed, networks.track), swag.SETTINGS),
        "IVON": Row(
            lambda: variational.variational(networks.variational(), networks.seed),
            variational.STARTS[problem.name].settings,
        ),
    }
    whole = scale.everything and networks.seed == 0  # the dearest row by far
    everything = {"subnetwork_size": weights(networks.model), "selection": "random", **PAPERS}
    chosen = OURS | ({EVERYTHING: everything} if whole else {})
    for number, (label, options) in enumerate(chosen.items()):
        kept = OURS.get(label, {})
        found[label] = Row(_fitted(networks, part, options, folder / f"bundle-{number}"), kept)
    return found


def first(examples: Examples, count: int) -> Examples:
    """The first `count` examples."""
    return examples[0][:count], examples[1][:count]


def subnetwork(networks: Networks, part: Examples, options: Mapping[str, Any], folder: Path, size: int) -> Method:
    """A bundle of ours; on a GPU the predictive of a subnetwork alone is computed there."""
    own = methods.sized(networks.model, {**options, "seed": networks.seed}, size)
    method = methods.ours(networks.model, part, networks.problem.held_out, own, folder)
    if networks.device.type == "cpu" or read_bundle(folder).manifest.added_weights is not None:
        return method
    return replace(method, probabilities=predictive(networks.model, read_bundle(folder), first(part, 2)))


def ensemble(networks: Networks, members: int) -> Method:
    """The mean over networks from other initialisations."""
    models = networks.members(members)
    return replace(methods.ensemble(models), facts={"bytes": sum(map(state_bytes, models))})


def one_batch(problem: Problem) -> Tensor:
    """The images by which prices are measured."""
    return problem.tests[0][: methods.TIMED]


def _dropout(networks: Networks) -> Method:
    model = networks.member(0, DROPOUT)
    return replace(methods.dropout(model), facts={"bytes": state_bytes(model)})


def weights(module: nn.Module) -> int:
    """How many it has."""
    return sum(p.numel() for p in module.parameters())


def last_linear(model: nn.Module) -> nn.Linear:
    """The head."""
    *_, head = (module for module in model.modules() if isinstance(module, nn.Linear))
    return head


def _fitted(networks: Networks, part: Examples, options: Mapping[str, Any], folder: Path) -> Callable[[], Method]:
    size = networks.scale.size
    if options.get("selection") == "last-layer":
        size = weights(last_linear(networks.model))
    elif "subnetwork_size" in options:
        size = options["subnetwork_size"]
    own = {name: value for name, value in options.items() if name != "subnetwork_size"}
    if "uncertainty_budget" in own:
        return lambda: subnetwork(networks, part, own, folder, size)
    return lambda: _rejecting(subnetwork(networks, part, own, folder, size), folder, networks.problem)


def _rejecting(method: Method, folder: Path, problem: Problem) -> Method:
    """With what the bundle rejects."""
    return replace(method, facts={**method.facts, "rejection": rejection(of_bundle(folder), problem)})


def _slightly_tempered(networks: Networks) -> Method:
    problem = networks.problem
    method = tempered(networks.model, problem.held_out, SMALL_BUDGET)
    found = rejection(by_entropy(method, problem.held_out[0]), problem)
    return replace(method, facts={**method.facts, "rejection": found})
