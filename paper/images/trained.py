"""How large an experiment is, and the networks of one seed: trained when they are asked for, and kept."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import nn

from benchmarks.experiments.frontier.networks import DigitNetwork, PhotoNetwork
from benchmarks.experiments.kept import trained_once
from benchmarks.experiments.training import BATCH, Recipe, one_cycle, paper_schedule, same, train, varied
from demur.offline.runtime.progress import Track
from paper.images.baselines import natural_gradient as variational
from paper.images.networks import resnet
from paper.images.problems import Problem

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
    "small CNN": DigitNetwork,
    "narrow ResNet": PhotoNetwork,
    "ResNet-18, grey": resnet(18, 1),
    "ResNet-50, grey": resnet(50, 1),
    "ResNet-18": resnet(18, 3),
    "ResNet-50": resnet(50, 3),
}


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
        """Where an outcome is kept."""
        network, kind = (text.replace(" ", "-").replace(",", "") for text in (self.scale.network, kind))
        return f"paper-{self.problem.name}-{network}-{self.tag}-{self.seed}-{kind}"

    def member(self, number: int, dropout: float = 0.0) -> nn.Module:
        """Network `number` of the ensemble; 0: the one that methods after training start from."""
        draw = 100 * self.seed + number
        torch.manual_seed(draw)
        model = NETWORKS[self.scale.network](dropout)
        kind = f"dropout-{number}" if dropout else f"plain-{number}"
        trained_once(
            self._file(kind),
            model,
            lambda: train(model, self.problem.train, self.recipe, draw, self.device, self.track),
        )
        return model.to(self.device)

    @cached_property
    def model(self) -> nn.Module:
        """The network that all methods after training start from (the paper's MAP)."""
        return self.member(0)

    def members(self, count: int) -> list[nn.Module]:
        """The first networks of the ensemble."""
        return [self.member(number) for number in range(count)]

    def variational(self) -> variational.VariationalNetwork:
        draw = 100 * self.seed
        torch.manual_seed(draw)
        network = variational.VariationalNetwork(NETWORKS[self.scale.network](0.0))
        start = variational.STARTS[self.problem.name]
        optimise = variational.ivon(len(self.problem.train[0]), start)
        recipe = replace(self.recipe, optimise=optimise, around=variational.sampled_weights)

        def run() -> None:
            network.keep_spread(train(network, self.problem.train, recipe, draw, self.device, self.track))

        trained_once(self._file(f"variational-{start.rate}-{start.curvature}-{start.memory}"), network, run)
        return network.to(self.device)

    def _file(self, kind: str) -> str:
        """Where weights are kept: by the amount of training too."""
        return self.key(f"{kind}-{len(self.problem.train[0])}x{self.scale.epochs}")
