"""What a trial needs of a network and its images, each read once: logits and the activations of two layers."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.experiments.corruptions import ROTATIONS
from benchmarks.experiments.frontier.data import Problem
from offline.data.held_out import HeldOut
from offline.data.shifts import JUDGING, finite_shifts
from offline.features.activations import read_activations
from offline.features.layers import choose_layers
from offline.fit import TUNING_SHARE
from offline.laplace.scoring import SHIFTED_EXAMPLES

Array = npt.NDArray[Any]
BATCH = 200
USUAL, TURNED, OTHERS = "usual", "turned", "other shifts"


@dataclass(frozen=True)
class Images:
    """Logits (n, K), the pooled inputs of a layer in the middle (n, F) and of the head (n, G), and classes (n,).

    linked: whether the added weights of a fit read the middle too, or the head's input alone.
    """

    logits: Array
    middle: Tensor
    last: Tensor
    classes: Array
    linked: bool

    @property
    def parts(self) -> Sequence[Tensor]:
        """The activations that added weights read, float64."""
        return (self.middle.double(), self.last.double()) if self.linked else (self.last.double(),)

    def first(self, count: int) -> "Images":
        """Some of them."""
        some = self.logits[:count], self.middle[:count], self.last[:count], self.classes[:count]
        return Images(*some, self.linked)


@dataclass(frozen=True)
class Reading:
    """train: in order; tuning: the held-out half that tunes; judging: its synthetic shifts by which a fit compares ways
    to share a budget; tests: usual images and shifts, by name."""

    head: nn.Linear
    train: Images
    tuning: Images
    judging: dict[str, Images]
    tests: dict[str, Images]

    @classmethod
    def of(cls, model: nn.Module, problem: Problem, train: int, shifted: int) -> "Reading":
        """train: so many training images; shifted: so many images of each shifted test set."""
        head = model.get_submodule("head")
        assert isinstance(head, nn.Linear)
        layers = choose_layers(model, problem.train[0][:2])
        assert layers is not None
        paths, linked = layers.score[-2:], len(layers.link) > 1

        def read(inputs: Tensor, classes: Tensor) -> Images:
            with torch.no_grad():
                pairs = [read_activations(model, paths, x) for x in torch.split(inputs, BATCH)]
                middle, last = (torch.cat(each) for each in zip(*pairs, strict=True))
                logits = F.linear(last, head.weight, head.bias)
            return Images(logits.double().numpy(), middle, last, classes.numpy(), linked)

        tuning, _ = HeldOut(*problem.held_out).split(TUNING_SHARE, 0)
        some, labels = tuning.inputs[:SHIFTED_EXAMPLES], tuning.targets[:SHIFTED_EXAMPLES]
        judging = finite_shifts(model, some, 0, [name for name in JUDGING if name.startswith(("blur", "rotation"))])
        counts = {name: len(x) if name == USUAL else shifted for name, x in problem.tests.items()}
        return cls(
            head,
            read(*(part[:train] for part in problem.train)),
            read(tuning.inputs, tuning.targets),
            {name: read(x, labels) for name, x in judging.items()},
            {name: read(x[: counts[name]], problem.classes[: counts[name]]) for name, x in problem.tests.items()},
        )


def groups(values: dict[str, float]) -> dict[str, float]:
    """The means over usual images, rotations and other shifts, of those that there are."""
    kinds: dict[str, list[float]] = {}
    for name, value in values.items():
        kind = USUAL if name == USUAL else TURNED if name in ROTATIONS else OTHERS
        kinds.setdefault(kind, []).append(value)
    return {kind: float(np.mean(found)) for kind, found in kinds.items()}
