"""Usual rows of a table, for a page where people try the model: medians of groups, never a row of the data.

A median is a value of one example, and says nothing of which: at least `LEAST_ALIKE` examples stand behind each row.
"""

import warnings
from collections.abc import Iterator

import numpy as np

from demur.service.bundle import InputSpec

from ..runtime.arrays import Array, to_numpy
from .held_out import HeldOut

MOST_FEATURES = 100  # the page has no form for more
MOST_ROWS = 6  # of the classes, and of the groups
LEAST_GROUP, LEAST_ALIKE = 10, 5
LOOKED_AT = 5000
DIGITS = 6


Rows = tuple[tuple[float, ...], ...]


def typical_rows(spec: InputSpec, held_out: HeldOut) -> Rows:
    """Candidates for usual rows of the held-out inputs (n, features); none where the user gave some.

    A row has the medians of a class, or of a group of examples that lie near each other (k-means of the standardised
    features). Columns of two values keep the combination that is most frequent in the group: medians by themselves
    could be one that no row has. Other inputs than tables of a few features, and small tables, have none.
    """
    is_table = len(spec.shape) == 1 and 1 < spec.shape[0] <= MOST_FEATURES and spec.dtype == "float32"
    if spec.typical is not None or spec.parts is not None or not is_table:
        return ()
    x = to_numpy(held_out.inputs[:LOOKED_AT]).astype(np.float64)
    if not np.isfinite(x).all():
        return ()
    coded = np.array([len(np.unique(column)) == 2 for column in x.T])
    groups = [*_classes(to_numpy(held_out.targets[:LOOKED_AT])), *_neighbours(x)]
    rows = [row for group in groups if (row := _row(x[group], coded)) is not None]
    return tuple(dict.fromkeys(tuple(float(f"{value:.{DIGITS}g}") for value in row) for row in rows))


def _classes(targets: Array) -> Iterator[Array]:
    """Of class numbers (n,): the places of each of the most frequent classes."""
    if targets.ndim != 1 or targets.dtype.kind not in "iu":
        return
    numbers, sizes = np.unique(targets, return_counts=True)
    for place in np.argsort(-sizes, kind="stable")[:MOST_ROWS]:
        yield np.flatnonzero(targets == numbers[place])


def _neighbours(x: Array) -> Iterator[Array]:
    """Places of rows near each other, the largest group first."""
    from sklearn.cluster import KMeans  # imported where it is needed: it takes a second
    from sklearn.exceptions import ConvergenceWarning

    groups = min(MOST_ROWS, len(x) // (2 * LEAST_GROUP))
    if groups < 1:
        return
    spread = x.std(axis=0)
    standardised = (x - x.mean(axis=0)) / np.where(spread > 0, spread, 1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # fewer different rows than groups: some stay empty
        group = KMeans(groups, n_init=1, random_state=0).fit_predict(standardised)
    for number in np.argsort(-np.bincount(group, minlength=groups), kind="stable"):
        yield np.flatnonzero(group == number)


def _row(x: Array, coded: Array) -> Array | None:
    """The medians of x (n, features), of `coded` (features,) columns the joint mode; None for too few alike."""
    if len(x) < LEAST_GROUP:
        return None
    codes, which, sizes = np.unique(x[:, coded], axis=0, return_inverse=True, return_counts=True)
    alike = x[which.reshape(-1) == sizes.argmax()] if len(codes) else x
    if len(alike) < LEAST_ALIKE:
        return None
    # The lower of two middle values, so that numbers such as 1 and 2 of a scale stay such numbers.
    median: Array = np.quantile(alike, 0.5, axis=0, method="inverted_cdf")
    return median
