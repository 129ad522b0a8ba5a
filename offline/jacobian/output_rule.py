"""Which variances a prediction computes, and how those of all K outputs follow from them.

Weights anywhere in the network need one backward pass for each variance. For a classification, the leading outputs
decide: with the variance v of the margin f_1 - f_2 between the two leading ones for all outputs, the probabilities are
softmax(f / sqrt(T^2 + pi / 8 v)), whose argmax is the network's.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal, Protocol

import torch
from torch import Tensor

from ..runtime.arrays import Array, to_numpy
from .mixtures import Mixed, Mixtures, every_output

Kind = Literal["all", "top", "margin"]


class OutputRule(Protocol):
    """`kind` and `count` M name the rule in the manifest."""

    @property
    def kind(self) -> Kind: ...

    def count(self, outputs: int) -> int:
        """M, how many variances are computed for K = `outputs`."""
        ...

    def mixing(self, mean: Tensor) -> Mixed:
        """The outputs, or mixtures of them, whose variances are computed; mean (B, K)."""
        ...

    def fill(self, variance: Tensor, mean: Tensor) -> Tensor:
        """From the variances (B, M, G) that were computed to those of all outputs, (B, K, G); mean (B, K)."""
        ...


@dataclass(frozen=True)
class AllOutputs:
    """The variance of every output."""

    kind: ClassVar[Kind] = "all"

    def count(self, outputs: int) -> int:
        """K."""
        return outputs

    def mixing(self, mean: Tensor) -> Mixed:
        """Every output."""
        return every_output(mean)

    def fill(self, variance: Tensor, mean: Tensor) -> Tensor:  # noqa: ARG002
        """As they are."""
        return variance


@dataclass(frozen=True)
class TopOutputs:
    """The variances of the M outputs with the largest means, M at most `most`; the others have the mean of these."""

    most: int
    kind: ClassVar[Kind] = "top"

    def count(self, outputs: int) -> int:
        """M, at most K."""
        return min(self.most, outputs)

    def mixing(self, mean: Tensor) -> Mixed:
        """The leading outputs."""
        return Mixtures(leading(mean, self.count(mean.shape[1])))

    def fill(self, variance: Tensor, mean: Tensor) -> Tensor:
        """v_k = its own where k leads, and otherwise the mean of the leading ones."""
        places = leading(mean, self.count(mean.shape[1])).to(variance.dtype).transpose(1, 2)
        others = 1 - places.sum(2, keepdim=True)
        return places @ variance + others * variance.mean(1, keepdim=True)


@dataclass(frozen=True)
class Margin:
    """The variance of the margin f_1 - f_2 between the two largest outputs, for all outputs; K >= 2."""

    kind: ClassVar[Kind] = "margin"

    def count(self, outputs: int) -> int:  # noqa: ARG002
        """1."""
        return 1

    def mixing(self, mean: Tensor) -> Mixed:
        """f_1 - f_2."""
        places = leading(mean, 2)
        return Mixtures(places[:, :1] - places[:, 1:])

    def fill(self, variance: Tensor, mean: Tensor) -> Tensor:
        """v_k = that of the margin."""
        return variance.expand(-1, mean.shape[1], -1)


ALL_OUTPUTS = AllOutputs()


def filled(rule: OutputRule, variance: Array, mean: Tensor) -> Array:
    """The variances of all outputs, (B, K) or for G posteriors (B, K, G), from those computed, (B, M) or (B, M, G)."""
    values = torch.as_tensor(variance)
    three = values.reshape(*values.shape[:2], -1)
    every = rule.fill(three, mean.detach().cpu())
    return to_numpy(every.reshape(*every.shape[:2], *values.shape[2:]))


def leading(mean: Tensor, count: int) -> Tensor:
    """(B, M, K): the one-hot rows of the M largest of the outputs (B, K), the largest first, the first of equal ones.

    One after the other: torch's `topk` leaves the order of equal values open, and theirs decides whose variance counts.
    """
    rest, rows = mean, list[Tensor]()
    every = torch.arange(mean.shape[1], device=mean.device)
    for _ in range(count):
        rows.append(rest.argmax(1, keepdim=True) == every)
        rest = rest.masked_fill(rows[-1], -torch.inf)
    return torch.stack(rows, dim=1).to(mean.dtype)


def output_rule(variance_of: Literal["all", "margin"] | int, outputs: int) -> OutputRule:
    """The rule of `FitConfig.variance_of` for K = `outputs`; the leading M outputs of at most M are all of them."""
    if isinstance(variance_of, int) and variance_of < outputs:
        return TopOutputs(variance_of)
    return Margin() if variance_of == "margin" else ALL_OUTPUTS
