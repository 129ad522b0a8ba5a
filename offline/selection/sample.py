"""The training examples that a score uses: all, or a random sample by the seed, the same in every pass."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from ..runtime.arrays import Array
from .context import SelectionContext
from .training_sample import draw_sample, smallest

SCORE_EXAMPLES = 512
# Inputs are regrouped to this many: a small sample would leave only a few of each of the loader's batches.
GROUP = 128
Count = Annotated[int, Field(ge=1)]


@dataclass(frozen=True)
class Sample:
    """Examples of the training data: `held` in memory, or those that `kept` (N,) bool marks in the loader's order, or
    all (both None)."""

    context: SelectionContext
    kept: Array | None
    held: Tensor | None = None

    @classmethod
    def of(cls, context: SelectionContext, examples: int | None) -> "Sample":
        """At most `examples` examples at random without replacement (None: all), in memory if the context has them.

        The smallest keys are drawn, as in `TrainingSample`.
        """
        if examples is None:
            return cls(context, None)
        if context.sample is not None and context.sample.holds(examples):
            return cls(context, None, context.sample.first(examples).inputs)
        total = count_examples(context)
        if examples >= total:
            return cls(context, None)
        kept = np.zeros(total, bool)
        kept[smallest(np.random.default_rng(context.job.config.seed).random(total), examples)] = True
        return cls(context, kept)

    def inputs(self, description: str) -> Iterable[Tensor]:
        """One pass: the sample's inputs in groups of at most 128."""
        if self.held is None:
            return self._read(description)
        groups = torch.split(self.held, GROUP)
        return self.context.job.track(groups, description, len(groups))

    def _read(self, description: str) -> Iterator[Tensor]:
        waiting: list[Tensor] = []
        for inputs in self._chosen(description):
            waiting.append(inputs)
            if sum(map(len, waiting)) >= GROUP:
                *full, rest = torch.split(torch.cat(waiting), GROUP)
                waiting = [rest] if len(rest) < GROUP else []
                yield from full if waiting else (*full, rest)
        if waiting:
            yield torch.cat(waiting)

    def _chosen(self, description: str) -> Iterator[Tensor]:
        start = 0
        for inputs, _ in self.context.batches(description):
            if self.kept is None:
                yield inputs
                continue
            kept = self.kept[start : start + len(inputs)]
            start += len(inputs)
            if kept.any():
                yield inputs[torch.as_tensor(kept, device=inputs.device)]


def holding(context: SelectionContext, examples: int | None) -> SelectionContext:
    """The context with so many examples in memory, so that several passes read the data once; None: as it is."""
    if examples is None or (context.sample is not None and context.sample.holds(examples)):
        return context
    return replace(context, sample=draw_sample(context.job, examples, "Sample of the training data"))


def count_examples(context: SelectionContext) -> int:
    """N, by one pass over the data where none has counted them."""
    known = context.job.passes.examples
    return known if known is not None else sum(len(inputs) for inputs, _ in context.job.pass_over_training())
