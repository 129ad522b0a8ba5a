"""Usual rows of a table, for a page where people try the model: medians of groups, never a row of the data."""

import warnings
from dataclasses import replace

import numpy as np
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning
from torch import Tensor

from probity.offline.runtime.arrays import Array, to_numpy
from probity.service.bundle import InputSpec

MOST_FEATURES = 100  # the page has no form for more
MOST_ROWS = 6
LEAST_GROUP = 10  # examples behind each row: its values say nothing about one of them
LOOKED_AT = 5000
DIGITS = 6


def with_typical_rows(spec: InputSpec, held_out: Tensor) -> InputSpec:
    """The spec with typical rows of `held_out` (n, features), the most usual first; those that the user gave stay.

    A row has the medians of a group of at least `LEAST_GROUP` examples that lie near each other (k-means of the
    standardised features). Other inputs than tables of a few features, and small tables, have none.
    """
    is_table = len(spec.shape) == 1 and 1 < spec.shape[0] <= MOST_FEATURES and spec.dtype == "float32"
    if spec.typical is not None or spec.parts is not None or not is_table:
        return spec
    rows = _typical_rows(to_numpy(held_out[:LOOKED_AT]).astype(np.float64))
    if not len(rows):
        return spec
    return replace(spec, typical=tuple(tuple(float(f"{value:.{DIGITS}g}") for value in row) for row in rows))


def _typical_rows(x: Array) -> Array:
    """(groups, features) of x (n, features)."""
    spread = x.std(axis=0)
    standardised = (x - x.mean(axis=0)) / np.where(spread > 0, spread, 1)
    groups = min(MOST_ROWS, len(x) // (2 * LEAST_GROUP))
    if groups < 1 or not np.isfinite(standardised).all():
        return x[:0]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # fewer different rows than groups: some stay empty
        group = KMeans(groups, n_init=1, random_state=0).fit_predict(standardised)
    sizes = np.bincount(group, minlength=groups)
    chosen = [g for g in np.argsort(-sizes, kind="stable") if sizes[g] >= LEAST_GROUP]
    # The lower of two middle values, so that codes such as 0 and 1 stay codes.
    medians = [np.quantile(x[group == g], 0.5, axis=0, method="inverted_cdf") for g in chosen]
    return np.array(medians).reshape(len(chosen), x.shape[1])
