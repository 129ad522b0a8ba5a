"""Two synthetic tables with rare events, the probability of which is known for every row.

A logistic model of five of eight standard normal columns. Its slope is the larger the rarer the events are, so that a
network can find them: its average precision is around 0.3.
"""

from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from sklearn.metrics import average_precision_score
from torch import Tensor

from benchmarks.core.settings import Values
from benchmarks.experiments.strangers.data import NOISE, Array, Problem

COLUMNS = 8
ROWS = (20_000, 8_000, 50_000)  # to train, to hold out and to test


def events(slope: float, offset: float, seed: int) -> Problem:
    """Drawn by the seed; the offset sets the share of rows with an event."""
    draw = np.random.default_rng(seed)
    train, held_out, test = (_drawn(draw, rows, slope, offset) for rows in ROWS)
    disturbed = test[0] + NOISE * torch.as_tensor(draw.standard_normal(test[0].shape), dtype=torch.float32)
    return Problem(train[:2], held_out[:2], test[:2], disturbed, float(test[2].mean()))


def _drawn(draw: np.random.Generator, rows: int, slope: float, offset: float) -> tuple[Tensor, Tensor, Array]:
    """Rows, whether there was an event, and its probability."""
    x = draw.standard_normal((rows, COLUMNS))
    probability = 1 / (1 + np.exp(-slope * _signal(x) - offset))
    happened = (draw.random(rows) < probability).astype(np.int64)
    return torch.as_tensor(x, dtype=torch.float32), torch.as_tensor(happened), probability


def _signal(x: Array) -> Array:
    found: Array = x[:, 0] + 0.8 * x[:, 1] + 0.6 * x[:, 2] + 0.5 * np.abs(x[:, 3]) + 0.3 * x[:, 4] * x[:, 5]
    return found


EVENTS: dict[str, Callable[[int], Problem]] = {
    "events-1": partial(events, 2.0, -8.943),  # 1 %
    "events-0.3": partial(events, 3.0, -14.474),  # 0.3 %
}


def of_events(probabilities: dict[str, Array], happened: Tensor, share: float) -> Values:
    """For each method: the mean probability of the event over its true share, and the average precision."""
    return {
        "mean": {method: float(p[:, 1].mean()) / share for method, p in probabilities.items()},
        "average_precision": {
            method: float(average_precision_score(happened.numpy(), p[:, 1])) for method, p in probabilities.items()
        },
    }
