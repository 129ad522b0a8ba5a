"""The rows of the image experiments: every method on the networks of one seed."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.experiments.frontier import methods
from benchmarks.experiments.frontier.methods import Method
from benchmarks.experiments.kept import seconds_of_training
from benchmarks.experiments.paper.images import last_blocks
from benchmarks.experiments.paper.images.baselines import natural_gradient as variational
from benchmarks.experiments.paper.images.baselines.diagonal_laplace import DiagonalLaplace
from benchmarks.experiments.paper.images.baselines.point import plain, state_bytes, tempered
from benchmarks.experiments.paper.images.baselines.swag import RATES, Walk, swag
from benchmarks.experiments.paper.images.networks import digit_network, photo_network, resnet
from benchmarks.experiments.paper.images.on_device import predictive
from benchmarks.experiments.paper.images.problems import Examples, Problem
from benchmarks.experiments.training import BATCH, Recipe, one_cycle, paper_schedule, same, train, varied
from offline.runtime.progress import Track
from service.bundle import read_bundle

BUDGET = 0.05  # nats of held-out log-likelihood, as FitConfig's default
DROPOUT, MEMBERS = 0.1, 5
SWAG_SNAPSHOTS = 4  # of an epoch
PAPERS_BATCH = 256

Make = Callable[[float], nn.Module]


@dataclass(frozen=True)
class Scale:
    """Images to train on, in each test set and for the curvature; weights of a subnetwork; epochs.

    schedule: epochs after which the paper's learning rate falls, () for one cycle of AdamW; everything: whether the
    posterior over all weights is tractable.
    """

    network: str
    train: int
    test: int
    curvature: int
    size: int
    epochs: int
    seeds: int
    swag_epochs: int
    schedule: tuple[int, ...] = ()
    everything: bool = False


NETWORKS: dict[str, Make] = {
    "small CNN": digit_network,
    "narrow ResNet": photo_network,
    "ResNet-18, grey": resnet(18, 1),
    "ResNet-50, grey": resnet(50, 1),
    "ResNet-18": resnet(18, 3),
    "ResNet-50": resnet(50, 3),
}

# What our strategies saw while choosing: no ranking may use it.
SYNTHETIC = ("noise", "blur", "inversion", "erasing")
OURS: dict[str, dict[str, Any]] = {
    "ours, Wasserstein": {"selection": "wasserstein-swag"},
    "ours, Wasserstein, best held-out lambda": {"selection": "wasserstein-swag", "prior_precision": "gridsearch"},
    "ours, random": {"selection": "random"},
    "ours, gradient": {"selection": "gradient"},
    "ours, novelty-sampling": {"selection": "novelty-sampling"},
    "last layer": {"selection": "last-layer"},
    "auto, at most 3 passes": {
        "selection": "auto",
        "max_cost": 3.0,
        "variance_of": "auto",
        "selection_options": {"shifts": list(SYNTHETIC)},
    },
    "auto, told of rotation": {"selection": "auto", "max_cost": 3.0, "variance_of": "auto"},
}
EVERYTHING = "all weights, full covariance"


@dataclass(frozen=True)
class Networks:
    """The trained networks of one seed, made when they are asked for and kept."""

    problem: Problem
    scale: Scale
    seed: int
    tag: str
    track: Track

    @property
    def device(self) -> torch.device:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")

    @property
    def recipe(self) -> Recipe:
        vary = varied if self.problem.name == "cifar" else same
        if self.scale.schedule:
            return Recipe(self.scale.epochs, paper_schedule(*self.scale.schedule), PAPERS_BATCH, vary)
        return Recipe(self.scale.epochs, one_cycle, BATCH, vary)

    def key(self, kind: str) -> str:
        network = self.scale.network.replace(" ", "-").replace(",", "")
        return f"paper-{self.problem.name}-{network}-{self.tag}-{self.seed}-{kind}"

    def member(self, number: int, dropout: float = 0.0) -> tuple[nn.Module, float]:
        """Network `number` of the ensemble (0: the one that all others start from), and seconds of its training."""
        draw = 100 * self.seed + number
        torch.manual_seed(draw)
        model = NETWORKS[self.scale.network](dropout)
        kind = f"dropout-{number}" if dropout else f"plain-{number}"
        seconds = self._trained(kind, model, model, self.recipe, draw)
        return model.to(self.device), seconds

    @cached_property
    def model(self) -> nn.Module:
        return self.member(0)[0]

    def block(self, number: int) -> tuple[nn.Module, float]:
        """Another last block for the first network's trunk."""
        draw = 100 * self.seed + number
        torch.manual_seed(draw)
        whole, block = last_blocks.new_block(self.model)
        seconds = self._trained(f"block-{number}", block, whole, self.recipe, draw)
        return block.to(self.device), seconds

    def variational(self) -> tuple[variational.VariationalNetwork, float]:
        draw = 100 * self.seed
        torch.manual_seed(draw)
        network = variational.VariationalNetwork(NETWORKS[self.scale.network](0.0))
        recipe = replace(
            self.recipe, optimise=variational.ivon(len(self.problem.train[0])), around=variational.sampled_weights
        )

        def run() -> None:
            network.keep_spread(train(network, self.problem.train, recipe, draw, self.device, self.track))

        seconds = seconds_of_training(self.key("variational"), network, run)
        return network.to(self.device), seconds

    def _trained(self, kind: str, kept: nn.Module, model: nn.Module, recipe: Recipe, seed: int) -> float:
        return seconds_of_training(
            self.key(kind), kept, lambda: train(model, self.problem.train, recipe, seed, self.device, self.track)
        )


def rows(networks: Networks, folder: Path) -> dict[str, Callable[[], Method]]:
    """Name of a row -> what makes its method."""
    problem, scale, track = networks.problem, networks.scale, networks.track
    part = first(problem.train, scale.curvature)
    laplace = DiagonalLaplace(networks.model, part, problem.held_out, networks.seed)
    walk = Walk(scale.swag_epochs, SWAG_SNAPSHOTS, RATES[0])
    made: dict[str, Callable[[], Method]] = {
        "MAP": lambda: plain(networks.model),
        "MAP, tempered within the budget": lambda: tempered(networks.model, problem.held_out, BUDGET),
        "diagonal Laplace, sampled": laplace.sampled,
        "diagonal Laplace, linearised": lambda: laplace.linearised(0.0),
        "diagonal Laplace, within the budget": lambda: laplace.linearised(BUDGET),
        "dropout": lambda: _dropout(networks),
        "ensemble of 5": lambda: ensemble(networks, MEMBERS),
        "SWAG": lambda: swag(networks.model, problem.train, problem.held_out, walk, networks.seed, track),
        "IVON": lambda: variational.variational(*networks.variational(), networks.seed),
        "five last blocks": lambda: _blocks(networks),
        "five last blocks, each with a posterior": lambda: _blocks_with_posteriors(networks, part, folder),
    }
    whole = scale.everything and networks.seed == 0  # the dearest row by far
    chosen = OURS | ({EVERYTHING: {"subnetwork_size": 1.0, "selection": "random"}} if whole else {})
    for number, (label, options) in enumerate(chosen.items()):
        made[label] = _fitted(networks, part, options, folder / f"bundle-{number}")
    return made


def first(examples: Examples, count: int) -> Examples:
    """The first `count` examples."""
    return examples[0][:count], examples[1][:count]


def ensemble(networks: Networks, members: int) -> Method:
    """The mean over networks from other initialisations; its price beyond MAP is the training of the others."""
    found = [networks.member(number) for number in range(members)]
    models = [model for model, _ in found]
    facts = {"fit_seconds": sum(seconds for _, seconds in found[1:]), "bytes": sum(map(state_bytes, models))}
    return replace(methods.ensemble(models), facts=facts)


def _dropout(networks: Networks) -> Method:
    model, seconds = networks.member(0, DROPOUT)
    return replace(methods.dropout(model), facts={"fit_seconds": seconds, "bytes": state_bytes(model)})


def _blocks(networks: Networks) -> Method:
    found = [networks.block(number) for number in range(1, last_blocks.MEMBERS)]
    method = last_blocks.means_only(networks.model, [block for block, _ in found])
    size = state_bytes(networks.model) + sum(state_bytes(block) for block, _ in found)
    return replace(method, facts={"fit_seconds": sum(seconds for _, seconds in found), "bytes": size})


def _blocks_with_posteriors(networks: Networks, part: Examples, folder: Path) -> Method:
    found = [networks.block(number) for number in range(1, last_blocks.MEMBERS)]
    blocks = [block for block, _ in found]
    place = folder / "blocks"
    place.mkdir()
    method = last_blocks.with_posteriors(
        networks.model, blocks, part, networks.problem.held_out, place, networks.scale.size
    )
    seconds = sum(seconds for _, seconds in found) + method.facts["fit_seconds"]
    return replace(method, facts={**method.facts, "fit_seconds": seconds})


def _fitted(networks: Networks, part: Examples, options: Mapping[str, Any], folder: Path) -> Callable[[], Method]:
    total = sum(p.numel() for p in networks.model.parameters())
    size = total if options.get("selection") == "last-layer" or "subnetwork_size" in options else networks.scale.size
    options = {name: value for name, value in options.items() if name != "subnetwork_size"}
    options["seed"] = networks.seed

    def make() -> Method:
        method = methods.ours(networks.model, part, networks.problem.held_out, options, folder, size)
        if networks.device.type == "cpu":
            return method
        return replace(method, probabilities=predictive(networks.model, read_bundle(folder), first(part, 2)))

    return make


def one_batch(problem: Problem) -> Tensor:
    """The images by which prices are measured."""
    return problem.tests[0][: methods.TIMED]
