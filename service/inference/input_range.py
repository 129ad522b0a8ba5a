"""Find inputs far outside the values that the network was fitted on: mostly a forgotten scaling. Pure NumPy.

"Far" is beyond the range by more than its width: 0 to 255 instead of 0 to 1 is far, a brighter image or an unusual
customer is not. Inputs that are too small, such as 0 to 1 instead of 0 to 255, lie within the range and pass.
"""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from ..bundle import InputSpec

Array = npt.NDArray[Any]
MAX_NAMED = 3  # examples named in one answer; the others are counted


class RangeCheck:
    """The range of one bundle's inputs (B, *spec.shape); `spec.range` must be there."""

    def __init__(self, spec: InputSpec) -> None:
        assert spec.range is not None
        self._spec, self._range = spec, spec.range
        low, high = np.array(spec.range.low), np.array(spec.range.high)
        width = high - low
        margin = np.where(width > 0, width, width.max() or np.maximum(np.abs(high).max(), 1.0))
        self._lowest, self._highest = low - margin, high + margin
        self._by_place = len(low) > 1
        # Float32 as the inputs are, or each comparison would copy them.
        self._inner = np.float32(self._lowest.max()), np.float32(self._highest.min())

    def outside(self, inputs: Array) -> Array:
        """Whether an example holds a value far outside, or NaN, (B,) bool; two passes over ordinary inputs."""
        if inputs.min() >= self._inner[0] and inputs.max() <= self._inner[1]:
            return np.zeros(len(inputs), bool)
        least, most = self._extremes(inputs)
        within: Array = ((least >= self._lowest) & (most <= self._highest)).all(axis=1)
        return ~within

    def warnings(self, inputs: Array, outside: Array, field: str) -> list[str]:
        """The warnings for the examples that are `outside` (B,); `field` is the request's name for the inputs."""
        rows = np.flatnonzero(outside)
        named = [f"{field}[{row}]{text}" for row, text in zip(rows, self.texts(inputs[rows[:MAX_NAMED]]), strict=False)]
        more = len(rows) - len(named)
        return [*named, f"{field}: {more} more such examples"] if more else named

    def texts(self, inputs: Array) -> Iterator[str]:
        """Of examples (B, *shape) that are outside: what follows their name, the place, the value and the range."""
        for least, most in zip(*self._extremes(inputs), strict=True):
            too_low, too_high = self._lowest - least, most - self._highest
            excess = np.maximum(too_low, too_high)
            place = int(np.argmax(excess))
            value = most[place] if too_high[place] >= too_low[place] else least[place]
            low, high = self._range.low[place], self._range.high[place]
            yield (
                f"{self._name(place)}: found the value {value:.4g}, but the network was fitted on values from "
                f"{low:.4g} to {high:.4g}: are the inputs scaled as they were for training?"
            )

    def _name(self, place: int) -> str:
        if not self._by_place:
            return ""
        names, kind = self._spec.feature_names, "channel" if len(self._spec.shape) > 1 else "feature"
        return f", {kind} {names[place]!r:.60}" if names else f", {kind} {place}"

    def _extremes(self, inputs: Array) -> tuple[Array, Array]:
        """The smallest and the largest values of each example, (B, 1) or (B, places)."""
        places = self._spec.shape[0] if self._by_place else 1
        values = inputs.reshape(len(inputs), places, math.prod(self._spec.shape) // places)
        return values.min(axis=2), values.max(axis=2)
