"""Which derivatives are formed: those of every output, or of some mixtures sum_k c_mk f_k of the outputs.

A backward pass gives the derivatives of one mixture. A few mixtures that stand for all outputs therefore cost a few
backward passes and not K.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class EveryOutput:
    """The K outputs themselves."""

    outputs: int

    def of(self, mean: Tensor) -> Tensor:
        """The outputs (B, K)."""
        return mean

    def shares(self, belongs: Tensor) -> Tensor:
        """(1, K, n): 1 where a weight that moves one output alone, `belongs` (n,), moves this one."""
        every = torch.arange(self.outputs, device=belongs.device)
        return (belongs == every.unsqueeze(1)).unsqueeze(0)

    def rows(self, weight: Tensor) -> Tensor:
        """(1, K, F): the rows of a linear head's weight (K, F)."""
        return weight.unsqueeze(0)

    def cotangents(self, mean: Tensor) -> Tensor:
        """(B, K, K): the identity for each example of `mean` (B, K)."""
        return torch.eye(self.outputs, dtype=mean.dtype, device=mean.device).expand(mean.shape[0], -1, -1)


@dataclass(frozen=True)
class Mixtures:
    """Mixtures of the outputs of each example, or the same of all: coefficients c (B, M, K) or (1, M, K), which are not
    differentiated."""

    coefficients: Tensor

    @property
    def outputs(self) -> int:
        """K."""
        return self.coefficients.shape[2]

    def of(self, mean: Tensor) -> Tensor:
        """The mixtures (B, M) of the outputs (B, K)."""
        return (self.coefficients @ mean.unsqueeze(2)).squeeze(2)

    def shares(self, belongs: Tensor) -> Tensor:
        """(B, M, n): c_mk for weights that move one output k alone, `belongs` (n,)."""
        return self.coefficients[:, :, belongs]

    def rows(self, weight: Tensor) -> Tensor:
        """(B, M, F): c W for the weight W (K, F) of a linear head."""
        return self.coefficients @ weight

    def cotangents(self, mean: Tensor) -> Tensor:
        """(B, M, K): the coefficients for each example of `mean` (B, K)."""
        return self.coefficients.expand(mean.shape[0], -1, -1)


Mixed = EveryOutput | Mixtures
Mixing = Callable[[Tensor], Mixed]


def every_output(mean: Tensor) -> EveryOutput:
    """No mixture: the derivatives of all outputs; mean (B, K)."""
    return EveryOutput(mean.shape[1])
