"""Of the candidates for usual rows, those that the finished bundle takes for usual."""

from pathlib import Path

import numpy as np

from demur.service.inference.predictor import Predictor

from ..data.typical_rows import MOST_ROWS, Rows


def usual_rows(candidates: Rows, folder: Path) -> Rows:
    """At most `MOST_ROWS` of them that the bundle in `folder` accepts: of every label that is predicted the one with
    the largest p-value, then the others, by their p-values."""
    if not candidates:
        return ()
    prediction = Predictor.load(folder, threads=1).predict(np.array(candidates, np.float32))
    order = [i for i in np.argsort(-prediction.p_value, kind="stable").tolist() if not prediction.rejected[i]]
    labels = [""] * len(candidates) if prediction.labels is None else [str(label) for label in prediction.labels]
    first = {labels[i]: i for i in reversed(order)}.values()
    return tuple(candidates[i] for i in sorted(order, key=lambda i: i not in first)[:MOST_ROWS])
