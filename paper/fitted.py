"""Small regressions, and a trained network with the Jacobian of all its weights, in float64."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from demur.offline.jacobian.plan import make_jacobian
from demur.offline.network.model_copy import private_copy
from demur.offline.network.weights import WeightLayout

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Problem:
    """Standardised training data x (N, F), y (N, 1), and named inputs (n, F) on which predictives are compared."""

    name: str
    x: Array
    y: Array
    points: dict[str, Array]


def standardising(train: Array) -> Callable[[Array], Array]:
    """What takes away the mean of these rows and divides by their standard deviation, column by column."""
    mean, std = train.mean(0), train.std(0)
    return lambda values: (values - mean) / np.where(std > 0, std, 1.0)


@dataclass(frozen=True)
class Fitted:
    """A trained network with one output."""

    model: nn.Module
    problem: Problem
    seed: int

    @cached_property
    def exact(self) -> nn.Module:
        return private_copy(self.model, torch.device("cpu"), torch.float64)

    @cached_property
    def layout(self) -> WeightLayout:
        return WeightLayout.of(self.model)

    @property
    def total(self) -> int:
        return self.layout.total

    def jacobian(self, x: "np.ndarray[tuple[int, ...], np.dtype[np.float64]] | Tensor") -> Tensor:
        """(n, D) float64."""
        inputs = torch.as_tensor(x, dtype=torch.float64)
        function = make_jacobian(self.exact, self.layout, torch.arange(self.total), inputs[:2])
        return torch.cat([function(part)[1][:, 0] for part in torch.split(inputs, 500)])
