"""What a prediction with uncertainty costs: its time over that of the plain network, measured on this machine."""

import statistics
import time
from collections.abc import Callable
from functools import partial

import numpy as np

from offline.runtime.arrays import Array
from service.bundle import MeasuredPrice

BATCHES = (1, 16)
Work = Callable[[Array], object]
ROUNDS, ROUND_SECONDS = 5, 0.01


def measured_price(full: Work, plain: Work, example: Array, least_seconds: float = 0.0) -> tuple[MeasuredPrice, ...]:
    """1 + (f - p) / max(p, least) for each batch size, the median of some rounds: f, p seconds of `full` and `plain`.

    full, plain: functions of inputs; example (1, *input_shape). least_seconds: what a network's own time counts at
    least; 0: the ratio f / p. What takes long is timed once a round.
    """
    found = []
    for batch in BATCHES:
        inputs = np.repeat(example, batch, axis=0)
        found.append(MeasuredPrice(batch, _price(partial(full, inputs), partial(plain, inputs), least_seconds)))
    return tuple(found)


def _price(full: Callable[[], object], plain: Callable[[], object], least: float) -> float:
    once = [max(seconds_of(work, 1) for _ in range(2)) for work in (full, plain)]  # first use, too
    counts = [max(1, round(ROUND_SECONDS / seconds)) for seconds in once]
    rounds = [(seconds_of(full, counts[0]), seconds_of(plain, counts[1])) for _ in range(ROUNDS)]
    return statistics.median(1 + (f - p) / max(p, least) for f, p in rounds)


def seconds_of(work: Callable[[], object], count: int) -> float:
    """Seconds for one call, on average."""
    start = time.perf_counter()
    for _ in range(count):
        work()
    return (time.perf_counter() - start) / count
