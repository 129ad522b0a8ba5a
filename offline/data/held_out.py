"""Held-out examples: half of them tune, the others set the reject threshold."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from demur.service.maths.rejection import minimum_calibration_examples

from ..runtime.arrays import Array, to_numpy
from ..runtime.progress import Track
from .likelihood import Likelihood

TUNING_SHARE = 0.5  # of the examples, where anything is tuned


@dataclass(frozen=True)
class HeldOut:
    """Examples kept from training: inputs (n, *shape), targets (n,) or (n, K)."""

    inputs: Tensor
    targets: Tensor

    def __len__(self) -> int:
        return len(self.inputs)

    def split(self, share: float, seed: int, by_class: bool = False) -> tuple["HeldOut", "HeldOut", "HeldOut"]:
        """A random share of the examples, rounded down, the rest, and both in this order, in the same memory;
        by_class: with that share of each class, or of each pattern of labels, to one example."""
        order, n = np.random.default_rng(seed).permutation(len(self)), len(self)
        chosen = np.arange(n) < int(share * n)
        if by_class:
            kinds = to_numpy(self.targets).reshape(n, -1)[order]
            chosen[np.lexsort(kinds.T)] = np.diff(np.floor(share * np.arange(n + 1))) > 0
        index = torch.as_tensor(np.concatenate([order[chosen], order[~chosen]]), device=self.inputs.device)
        both, cut = HeldOut(self.inputs[index], self.targets[index]), int(chosen.sum())
        first, rest = (HeldOut(both.inputs[part], both.targets[part]) for part in (slice(cut), slice(cut, None)))
        return first, rest, both

    def chunks(self, rows: int, track: Track, description: str) -> Iterable[tuple[Tensor, Array]]:
        """Pieces of at most `rows` examples, with progress; their targets as arrays."""
        targets = map(to_numpy, torch.split(self.targets, rows))
        pieces = list(zip(torch.split(self.inputs, rows), targets, strict=True))
        return track(pieces, description, len(pieces))


def check_enough(tuning: int, conformal: int, false_reject_rate: float, tuned: bool) -> None:
    """`ValueError` when the conformal part is too small to reject anything at this rate, or nothing is left to tune."""
    needed = minimum_calibration_examples(false_reject_rate)
    if conformal < needed or (tuned and not tuning):
        total = f"{max(2, 2 * needed)} in all, half of which tune" if tuned else f"{needed} in all"
        raise ValueError(
            f"calibration_loader: found {conformal} examples to set the threshold and {tuning} to tune, expected at "
            f"least {needed} for false_reject_rate={false_reject_rate} ({total}); give more held-out data or a larger "
            "rate"
        )


def collect_held_out(pairs: Iterator[tuple[Tensor, Tensor]], likelihood: Likelihood) -> HeldOut:
    """All held-out examples in memory, their targets checked."""
    inputs, targets = [], []
    for batch_inputs, batch_targets in pairs:
        inputs.append(batch_inputs)
        targets.append(likelihood.check_targets(batch_targets, len(batch_inputs)))
    return HeldOut(torch.cat(inputs), torch.cat(targets))
