"""The training examples that a score uses: all, or a random sample by the seed, the same in every pass."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from offline.runtime.arrays import Array
from offline.selection.context import SelectionContext

SCORE_EXAMPLES = 512
# Inputs are regrouped to this many: a small sample would leave only a few of each of the loader's batches.
GROUP = 128


@dataclass(frozen=True)
class Sample:
    """Examples of the training data: `kept` (N,) bool marks them in the loader's order, None means all."""

    context: SelectionContext
    kept: Array | None

    @classmethod
    def of(cls, context: SelectionContext, examples: int | None) -> "Sample":
        """At most `examples` examples at random without replacement (None: all); one pass counts the data.

        Raises `ValueError` for anything but None or an integer of at least 1.
        """
        check_count(examples, "examples")
        if examples is None:
            return cls(context, None)
        total = count_examples(context)
        if examples >= total:
            return cls(context, None)
        kept = np.zeros(total, bool)
        kept[np.random.default_rng(context.job.config.seed).choice(total, examples, replace=False)] = True
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
    """N, by one pass over the data."""
    return sum(len(inputs) for inputs, _ in context.job.pass_over_training())


def check_count(value: object, option: str) -> None:
    """`ValueError` for anything but None or an integer of at least 1."""
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
        raise ValueError(
            f"selection_options[{option!r}]: found {value!r}, expected an integer of at least 1, or None for all"
        )
