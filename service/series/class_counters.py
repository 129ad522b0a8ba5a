"""A counter for each class of a model; of very many classes, for the usual ones."""

from collections.abc import Callable, Iterable, Sequence

import numpy as np
import numpy.typing as npt
from prometheus_client import Counter

MOST_CLASSES = 100
OTHERS = "other classes"


class ClassCounters:
    """Counts examples by the place of their class in `labels`. make: the counter of one label, which begins at zero.

    Of more than `MOST_CLASSES`, the `usual` ones have a counter each, the same in every process, and all others one
    together: a thousand classes would be most of what is scraped.
    """

    def __init__(self, labels: Sequence[str], make: Callable[[str], Counter], usual: Sequence[int] = ()) -> None:
        few = len(labels) <= MOST_CLASSES
        shown = range(len(labels)) if few else usual[:MOST_CLASSES]
        self._labels, self._counters = labels, {k: make(labels[k]) for k in shown}
        self._others = None if few else make(OTHERS)

    def add(self, classes: npt.NDArray[np.intp]) -> None:
        """Count each of the examples, (B,), under its class."""
        counts = np.bincount(classes, minlength=1)
        for k in np.flatnonzero(counts).tolist():
            counter = self._counters.get(k) or self._others
            assert counter is not None
            counter.inc(int(counts[k]))

    def names(self) -> Iterable[str]:
        """The labels that have a counter."""
        yield from (self._labels[k] for k in self._counters)
        if self._others is not None:
            yield OTHERS
