"""The training examples that a strategy looks at: all, or a random sample by the seed, the same in every pass."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ..runtime.arrays import Array
from .context import SelectionContext

# Inputs are regrouped to this many: a small sample would leave only a few of each of the loader's batches.
GROUP = 128


@dataclass(frozen=True)
class Sample:
    """Examples of the training data: those that `kept` (N,) bool marks in the loader's order, or all (None)."""

    context: SelectionContext
    kept: Array | None

    @classmethod
    def of(cls, context: SelectionContext, examples: int) -> "Sample":
        """At most `examples` examples at random without replacement."""
        total = count_examples(context)
        if examples >= total:
            return cls(context, None)
        kept = np.zeros(total, bool)
        keys = np.random.default_rng(context.job.config.seed).random(total)
        kept[np.argsort(keys, kind="stable")[:examples]] = True
        return cls(context, kept)

    def inputs(self, description: str) -> Iterator[Tensor]:
        """One pass: the sample's inputs in groups of at most 128."""
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


def count_examples(context: SelectionContext) -> int:
    """N, by one pass over the data where none has counted them."""
    known = context.job.train.examples
    return known if known is not None else sum(len(inputs) for inputs, _ in context.job.pass_over_training())
