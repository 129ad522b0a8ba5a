"""The distribution of the calibration data, in gauges that a query compares the served histograms with.

With S(le) the served share of examples at or below a bucket's bound, and R(le) that of the calibration data, the
Kolmogorov-Smirnov distance is max_le |S(le) - R(le)|: one PromQL expression over two families with the same `le`. The
population stability index sums (s_b - r_b) ln(s_b / r_b) over bins b. It needs bins that hold enough of the reference,
so neighbouring buckets are merged.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
from prometheus_client import Gauge
from prometheus_client.utils import floatToGoString

from probity.service.monitoring.metrics import Labels, Metrics, several_processes

Array = npt.NDArray[Any]
# Of the reference. Tenths are meant; a tenth of few examples, rounded down to whole ones, is less.
LEAST_SHARE = 0.08


def cumulative_shares(values: Array, bounds: Sequence[float]) -> Array:
    """#{value <= bound} / n for each bound, then 1 for +Inf: ascending `values` (n,), n >= 1 -> (len(bounds) + 1,)."""
    shares: Array = np.searchsorted(values, [*bounds, np.inf], side="right") / len(values)
    return shares


def merged_bins(shares: Array) -> list[int]:
    """The last bucket of each bin, for cumulative `shares` (B,): every bin holds at least `LEAST_SHARE`.

    What is left after the last such bin belongs to it.
    """
    ends, held = list[int](), 0.0
    for i, share in enumerate(shares.tolist()):
        if share - held >= LEAST_SHARE:
            ends.append(i)
            held = share
    return [*ends[:-1], len(shares) - 1]


class ReferenceSeries:
    """The series of one model. `distributions`: quantity -> (bucket bounds, ascending values on calibration data);
    `classes`: label -> the share of these data that was predicted to be of it, where the bundle keeps that."""

    def __init__(
        self,
        metrics: Metrics,
        model: tuple[str, str],
        distributions: Mapping[str, tuple[Sequence[float], Array]],
        classes: Mapping[str, float],
    ) -> None:
        self._metrics, self._model = metrics, model
        shares, bins = dict[Labels, float](), dict[Labels, float]()
        for quantity, (bounds, values) in distributions.items():
            cumulative = cumulative_shares(values, bounds)
            names = [_le(bound) for bound in (*bounds, np.inf)]
            shares |= {(*model, quantity, le): share for le, share in zip(names, cumulative.tolist(), strict=True)}
            ends = merged_bins(cumulative)
            parts = np.diff(cumulative[ends], prepend=0.0).tolist()
            edges = pairwise(["", *(names[end] for end in ends)])
            bins |= {(*model, quantity, *edge): part for edge, part in zip(edges, parts, strict=True)}
        self._values: dict[Gauge, dict[Labels, float]] = {
            metrics.reference_share: shares,
            metrics.reference_bin: bins,
            metrics.reference_class: {(*model, label): share for label, share in classes.items()},
        }

    def announce(self) -> None:
        """Set every series, in place of those of a bundle that had the same name and version."""
        before = self._metrics.reference_values.get(self._model, {})
        for gauge, values in self._values.items():
            _drop(gauge, before.get(gauge, {}).keys() - values.keys())
            for labels, value in values.items():
                gauge.labels(*labels).set(value)
        self._metrics.reference_values[self._model] = self._values

    def remove(self) -> None:
        """Remove every series."""
        for gauge, values in self._values.items():
            _drop(gauge, values.keys())
        self._metrics.reference_values.pop(self._model, None)


def _le(bound: float) -> str:
    """The bound as the histogram writes it."""
    return str(floatToGoString(bound))  # type: ignore[no-untyped-call]


def _drop(gauge: Gauge, series: Iterable[Labels]) -> None:
    """Remove series. From the files of several processes nothing can be removed: NaN is left out of a scrape."""
    for labels in series:
        if several_processes():
            gauge.labels(*labels).set(np.nan)
        else:
            gauge.remove(*labels)
