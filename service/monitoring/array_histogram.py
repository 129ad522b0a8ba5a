"""Histograms of models that take many values at once."""

import bisect
import itertools
import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from prometheus_client import CollectorRegistry, Metric, values
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

FEW = 8  # up to here, adding values one by one is as fast as all at once
Labels = tuple[str, ...]


class ArrayHistogram(Collector):
    """The histograms of one name, with the same `bounds` (ascending, from 0 on) for all labels, in `registry`.

    prometheus-client's own `Histogram` takes one value at a time, which makes the 32 examples of a request three times
    as slow to count. The samples are those that it would have, also in the files of several processes.
    """

    def __init__(
        self, name: str, text: str, label_names: Labels, bounds: Sequence[float], registry: CollectorRegistry
    ) -> None:
        self._name, self._text, self.label_names, self._bounds = name, text, label_names, (*bounds,)
        self._children = dict[Labels, ArrayHistogramChild]()
        registry.register(self)

    def labels(self, *labels: str) -> "ArrayHistogramChild":
        """The histogram of these labels; it begins at zero."""
        if labels not in self._children:
            names = [str(floatToGoString(bound)) for bound in (*self._bounds, math.inf)]  # type: ignore[no-untyped-call]
            named = dict(zip(self.label_names, labels, strict=True))
            buckets = [self._value("_bucket", **named, le=name) for name in names]
            self._children[labels] = ArrayHistogramChild(names, self._bounds, buckets, self._value("_sum", **named))
        return self._children[labels]

    def remove(self, *labels: str) -> None:
        """Remove the histogram of these labels, if there is one."""
        self._children.pop(labels, None)

    def describe(self) -> Iterable[Metric]:
        """The name, for the registry."""
        yield Metric(self._name, self._text, "histogram")

    def collect(self) -> Iterable[Metric]:
        """Every histogram of the name."""
        family = Metric(self._name, self._text, "histogram")
        for labels, child in [*self._children.items()]:
            named = dict(zip(self.label_names, labels, strict=True))
            for bound, count in child.cumulative():
                family.add_sample(f"{self._name}_bucket", {**named, "le": bound}, count)
            family.add_sample(f"{self._name}_count", named, count)
            family.add_sample(f"{self._name}_sum", named, child.total.get())
        yield family

    def _value(self, suffix: str, **labels: str) -> Any:
        """A number that can be added to: of this process, or in the file that it shares with others."""
        names, found = (*labels,), (*labels.values(),)
        return values.ValueClass("histogram", self._name, self._name + suffix, names, found, self._text)


class ArrayHistogramChild:
    """The histogram of one set of labels: `names` of the `bounds` in the samples.

    `buckets`: the number of values up to each bound, and beyond the last one; `total`: their sum.
    """

    def __init__(self, names: Sequence[str], bounds: Sequence[float], buckets: Sequence[Any], total: Any) -> None:
        self._names, self._bounds, self._bounds_array = names, bounds, np.array(bounds)
        self._buckets, self.total = buckets, total

    def observe(self, found: npt.NDArray[Any]) -> None:
        """Add every value, (B,)."""
        if len(found) <= FEW:
            for one in found.tolist():
                self._buckets[bisect.bisect_left(self._bounds, one)].inc(1)
        else:
            counts = np.bincount(np.searchsorted(self._bounds_array, found)).tolist()
            for bucket, count in zip(self._buckets, counts, strict=False):
                if count:
                    bucket.inc(count)
        self.total.inc(float(found.sum()))

    def cumulative(self) -> list[tuple[str, float]]:
        """Each bound with the number of values at or below it."""
        return [*zip(self._names, itertools.accumulate(one.get() for one in self._buckets), strict=True)]
