"""A counter for each class of a model; of very many classes, for as many as come first."""

from collections.abc import Callable, Iterable, Sequence

import numpy as np
import numpy.typing as npt
from prometheus_client import Counter

MOST_CLASSES = 100
OTHERS = "other classes"


class ClassCounters:
    """Counts examples by the place of their class in `labels`. make: the counter of one label, which begins at zero.

    Of more than `MOST_CLASSES`, those that are counted first have a counter each, and all others one together: a
    thousand classes would be most of what is scraped.
    """

    def __init__(self, labels: Sequence[str], make: Callable[[str], Counter]) -> None:
        self._labels, self._make = labels, make
        few = len(labels) <= MOST_CLASSES
        self._counters: dict[int, Counter] = {k: make(label) for k, label in enumerate(labels)} if few else {}
        self._others = None if few else make(OTHERS)

    def add(self, classes: npt.NDArray[np.intp]) -> None:
        """Count each of the examples, (B,), under its class."""
        counts = np.bincount(classes, minlength=1)
        for k in np.flatnonzero(counts).tolist():
            self._counter(k).inc(int(counts[k]))

    def _counter(self, k: int) -> Counter:
        if k not in self._counters and len(self._counters) < MOST_CLASSES:
            self._counters[k] = self._make(self._labels[k])
        return self._counters.get(k) or self._others  # type: ignore[return-value]

    def names(self) -> Iterable[str]:
        """The labels that have a counter."""
        yield from (self._labels[k] for k in self._counters)
        if self._others is not None:
            yield OTHERS
