"""How good intervals are, inside the gap and on ordinary rows, and whether the score tells one from the other."""

from typing import Any

import numpy as np

from demur.offline.data.likelihood import gaussian_log_likelihood
from demur.offline.evaluation.diagnostics import auroc
from paper.gaps.data import GapSplit
from paper.gaps.methods import Method
from paper.tables.data import Array

Z = 1.959964  # half the width of a 95 % interval, in standard deviations
GRID, MARGIN = 200, 0.5  # points of a picture, and how far beyond the data they go
PARTS = "ordinary", "gap"


def quality(method: Method, split: GapSplit, most: int | None) -> dict[str, Any]:
    """For each part: mean log-likelihood (nats, original units), coverage of the 95 % intervals, their mean width in
    standard deviations of the targets, mean squared error likewise, the share rejected; and the score's AUROC."""
    tables = {part: getattr(split, part).first(most) for part in PARTS}
    predicted = {part: method.predict(table.x) for part, table in tables.items()}
    found: dict[str, Any] = {}
    for part, table in tables.items():
        one, targets = predicted[part], table.y
        each = gaussian_log_likelihood(one.mean[:, None], one.std[:, None], targets)
        residual = targets[:, 0] - one.mean
        found[part] = {
            "log_likelihood": float(each.mean()) - float(np.log(split.scale)),
            "coverage": float((np.abs(residual) <= Z * one.std).mean()),
            "width": float(2 * Z * one.std.mean()),
            "squared_error": float(np.square(residual).mean()),
            "rejected": None if one.rejected is None else float(one.rejected.mean()),
        }
    scores = [predicted[part].score for part in PARTS]
    return found | {"auroc": auroc(*scores) if any(np.ptp(score) > 0 for score in scores) else None}


def picture(method: Method, split: GapSplit) -> dict[str, Any]:
    """Mean, standard deviation and rejection over a grid of inputs, and the rows."""
    x = split.train.x
    grid = np.linspace(x.min() - MARGIN, x.max() + MARGIN, GRID)
    found = method.predict(grid[:, None])
    rejected = np.zeros(GRID, bool) if found.rejected is None else found.rejected
    data = {part: [_short(table.x[:, 0]), _short(table.y[:, 0])] for part, table in _tables(split).items()}
    return {
        "x": _short(grid),
        "mean": _short(found.mean),
        "std": _short(found.std),
        "rejected": rejected.astype(int).tolist(),
        "data": data,
    }


def _tables(split: GapSplit) -> dict[str, Any]:
    return {"train": split.train, "gap": split.gap}


def _short(values: Array) -> list[float]:
    rounded: list[float] = np.round(values, 3).tolist()
    return rounded
