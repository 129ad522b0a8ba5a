"""The range of the input values that a network was fitted on, recorded during a pass."""

from collections.abc import Iterable, Iterator
from dataclasses import replace

import torch
from torch import Tensor

from demur.service.bundle import InputRange, InputSpec
from demur.service.inference.input_range import RangeCheck

MAX_PLACES = 256  # features or channels with a range each; more would fill the model card
DIGITS = 6


class RangeMeter:
    """Smallest and largest values at each place of the inputs' first axis, a feature's or a channel's."""

    def __init__(self) -> None:
        self._low: Tensor | None = None
        self._high: Tensor | None = None

    def watch(self, pairs: Iterable[tuple[Tensor, Tensor]]) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield the pairs and record their inputs (B, *shape)."""
        for inputs, targets in pairs:
            self.note(inputs)
            yield inputs, targets

    def note(self, inputs: Tensor) -> None:
        """Extend the range by these inputs (B, *shape), B >= 1; tokens have none."""
        if not inputs.is_floating_point():
            return
        places = inputs.shape[1] if inputs.dim() > 1 else 1
        low, high = torch.aminmax(inputs.reshape(len(inputs), places, -1).movedim(1, 0).flatten(1), dim=1)
        self._low = low if self._low is None else torch.minimum(self._low, low)
        self._high = high if self._high is None else torch.maximum(self._high, high)

    @property
    def ends(self) -> tuple[float, float] | None:
        """The smallest and the largest value so far; None of tokens."""
        if self._low is None or self._high is None:
            return None
        return float(self._low.min()), float(self._high.max())

    def with_range(self, spec: InputSpec, held_out: Tensor) -> InputSpec:
        """The spec with the range of the inputs noted and of `held_out` (n, *shape); one that the user gave stays.

        Inputs of whole numbers alone have none. The range goes by features or channels where these have sizes of their
        own. It goes by all entries together where there are many, and where the noted inputs' range would call held-out
        examples strange: places that are mostly zero, such as an image's corners, say little by themselves.
        """
        tokens = spec.parts is not None and all(part.dtype != "float32" for part in spec.parts)
        if spec.range is not None or self._low is None or tokens:
            return spec
        by_place = len(spec.shape) in (1, 3) and spec.shape[0] <= MAX_PLACES
        if by_place and RangeCheck(self._ranged(spec, by_place)).outside(held_out.cpu().numpy()).any():
            by_place = False
        self.note(held_out)
        return self._ranged(spec, by_place)

    def _ranged(self, spec: InputSpec, by_place: bool) -> InputSpec:
        assert self._low is not None
        assert self._high is not None
        low, high = (self._low, self._high) if by_place else (self._low.min()[None], self._high.max()[None])
        return replace(spec, range=InputRange(_numbers(low), _numbers(high)))


def _numbers(values: Tensor) -> tuple[float, ...]:
    """Without the digits that float32 does not have."""
    return tuple(float(f"{value:.{DIGITS}g}") for value in values.tolist())
