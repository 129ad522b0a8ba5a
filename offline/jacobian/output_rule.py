"""Which variances a prediction computes, and how those of all K outputs follow from them.

Weights anywhere in the network need one backward pass for each variance. For a classification, the leading outputs
decide: with the variance v of the leading output, or of the margin f_1 - f_2 between the two leading ones, for all
outputs, the probabilities are softmax(f / sqrt(T^2 + pi / 8 v)), whose argmax is the network's. With the variances v_k
of the differences f_k - f_1 they are softmax((f - f_1) / sqrt(T^2 + pi / 8 v)): a rule says which link it goes with.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal, Protocol

import torch
from torch import Tensor

from offline.jacobian.mixtures import LessLeading, Mixed, Mixtures, every_output
from offline.runtime.arrays import Array, to_numpy
from service.maths.predictive import Link

Kind = Literal["all", "top", "top-mean", "margin", "differences"]


class OutputRule(Protocol):
    """`kind` and `count` M name the rule in the manifest."""

    @property
    def kind(self) -> Kind: ...

    @property
    def link(self) -> Link: ...

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
    link: ClassVar[Link] = "probit"

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
class Leading:
    """The variances of the M outputs with the largest means are computed, M at most `most`."""

    most: int
    link: ClassVar[Link] = "probit"

    def count(self, outputs: int) -> int:
        """M, at most K."""
        return min(self.most, outputs)

    def mixing(self, mean: Tensor) -> Mixed:
        """The leading outputs."""
        return Mixtures(leading(mean, self.count(mean.shape[1])))


@dataclass(frozen=True)
class TopOutputs(Leading):
    """Each leading output has its own variance, and the others have the mean of these."""

    kind: ClassVar[Kind] = "top"

    def fill(self, variance: Tensor, mean: Tensor) -> Tensor:
        """v_k = its own where k leads, and otherwise the mean of the leading ones."""
        places = leading(mean, self.count(mean.shape[1])).to(variance.dtype).transpose(1, 2)
        others = 1 - places.sum(2, keepdim=True)
        return places @ variance + others * variance.mean(1, keepdim=True)


@dataclass(frozen=True)
class TopMean(Leading):
    """All outputs have the mean variance of the leading ones."""

    kind: ClassVar[Kind] = "top-mean"

    def fill(self, variance: Tensor, mean: Tensor) -> Tensor:
        """v_k = the mean of the leading ones."""
        return variance.mean(1, keepdim=True).expand(-1, mean.shape[1], -1)


@dataclass(frozen=True)
class Margin:
    """The variance of the margin f_1 - f_2 between the two largest outputs, for all outputs; K >= 2."""

    kind: ClassVar[Kind] = "margin"
    link: ClassVar[Link] = "probit"

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


@dataclass(frozen=True)
class Differences:
    """The variances of f_k - f_1, f_1 the largest output, for all others; f_1 itself has their mean; K >= 2.

    For its link, which divides f_1 - f_1 = 0, any variance of the largest output would do.
    """

    kind: ClassVar[Kind] = "differences"
    link: ClassVar[Link] = "probit-differences"

    def count(self, outputs: int) -> int:
        """K - 1."""
        return outputs - 1

    def mixing(self, mean: Tensor) -> Mixed:
        """f_k - f_1 for all k but the leading one, in order."""
        return LessLeading(mean.argmax(1, keepdim=True), mean.shape[1])

    def fill(self, variance: Tensor, mean: Tensor) -> Tensor:
        """v_k = that of its difference."""
        first, every = mean.argmax(1, keepdim=True), torch.arange(mean.shape[1], device=mean.device)
        places = (every - (every > first).int()).clamp(max=mean.shape[1] - 2)
        own = variance.gather(1, places.unsqueeze(2).expand(-1, -1, variance.shape[2]))
        return torch.where((every == first).unsqueeze(2), variance.mean(1, keepdim=True), own)


ALL_OUTPUTS = AllOutputs()
MEAN_OF = 3  # leading outputs whose mean is compared


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


def rules_to_compare(most: int, outputs: int, many: int) -> tuple[OutputRule, ...]:
    """Rules for K = `outputs` to compare: that of all outputs, or for more than `many` of the leading ones; and
    others, whose mixtures are spanned by the first one's."""
    if outputs > many:
        return (TopOutputs(max(most, MEAN_OF)), TopMean(MEAN_OF), Margin())
    differences = (Differences(),) if outputs > 2 else ()  # of two outputs, the margin is the only one
    return (ALL_OUTPUTS, *differences, TopMean(MEAN_OF), Margin())


def output_rule(kind: Kind, most: int, outputs: int) -> OutputRule:
    """The rule of this name for K = `outputs`; the leading M outputs of at most M are all of them."""
    if kind == "top" and most < outputs:
        return TopOutputs(most)
    if kind == "top-mean":
        return TopMean(most)
    if kind == "differences":
        return Differences()
    return Margin() if kind == "margin" else ALL_OUTPUTS
