"""Which of the answered examples the test for drift sees: a part, chosen whatever their scores, tells as much."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
TESTED = 100  # examples of a window at most
OF_A_REQUEST = 10  # examples of a request at most: no client drowns another's
REMEMBERED = 20_000  # inputs that are known when they come again
DISTINCT = 0.99  # share of different scores among held-out ones, from which on inputs do not repeat by themselves
WHOLE = 4096  # entries of an input that are compared; of larger ones so many, and the sum


class DriftSample:
    """At most `TESTED` examples of a window, at most `OF_A_REQUEST` of each request, uniformly at random.

    An input that comes again, as in a client's second attempt, counts once: its copies are not exchangeable with
    anything. Unless held-out inputs repeat too, as those of few possible values do: then copies are ordinary.
    held_out: their scores (n,).
    """

    def __init__(self, held_out: Array, generator: np.random.Generator | None = None) -> None:
        self._generator = np.random.default_rng() if generator is None else generator
        self._knows_copies = len(np.unique(held_out)) >= DISTINCT * len(held_out)
        self._known: dict[int, None] = {}  # from the oldest on
        self._kept: list[tuple[int, float]] = []
        self._offered = 0

    def offer(self, inputs: Array, scores: Array) -> None:
        """The examples of one request: inputs (B, *input_shape), scores (B,)."""
        rows: Sequence[int] = range(len(scores))
        if len(scores) > OF_A_REQUEST:
            rows = sorted(self._generator.choice(len(scores), OF_A_REQUEST, replace=False).tolist())
        for row in rows:
            if not (self._knows_copies and self._is_copy(inputs[row])):
                self._keep(float(scores[row]))

    def take(self) -> Array:
        """The scores of the window, in their order; another one begins."""
        found = np.array([score for _, score in sorted(self._kept)])
        self._kept, self._offered = [], 0
        return found

    def _keep(self, score: float) -> None:
        """Each of the n offered so far is kept with probability `TESTED` / n (Vitter's algorithm R, 1985)."""
        self._offered += 1
        if len(self._kept) < TESTED:
            self._kept.append((self._offered, score))
        elif (place := int(self._generator.integers(self._offered))) < TESTED:
            self._kept[place] = self._offered, score

    def _is_copy(self, example: Array) -> bool:
        mark = _mark(example)
        if mark in self._known:
            return True
        if len(self._known) >= REMEMBERED:
            del self._known[next(iter(self._known))]
        self._known[mark] = None
        return False


def _mark(example: Array) -> int:
    flat = example.ravel()
    if flat.size <= WHOLE:
        return hash(flat.tobytes())
    return hash((flat[:: flat.size // WHOLE].tobytes(), float(flat.sum())))
