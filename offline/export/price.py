"""What a prediction with uncertainty costs: its time over that of the plain network, measured on this machine."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from demur.service.bundle import MeasuredPrice

from ..runtime.arrays import Array

BATCHES = (1, 16)
Work = Callable[[Array], object]
ROUNDS, ROUND_SECONDS = 7, 0.01
LEAST_TICK = 1e-9


@dataclass(frozen=True)
class Timing:
    """Seconds that a batch takes: mean and variance (`full`), and the plain network."""

    batch: int
    full: float
    plain: float

    @property
    def passes(self) -> float:
        """full / plain: forward passes of the plain network."""
        return self.full / self.plain


def time_both(full: Work, plain: Work, example: Array) -> tuple[Timing, ...]:
    """For each batch size. full, plain: functions of inputs that compute in this thread; example (1, *input_shape)."""
    found = []
    for batch in BATCHES:
        inputs = np.repeat(example, batch, axis=0)
        found.append(Timing(batch, *_least_seconds(partial(full, inputs), partial(plain, inputs))))
    return tuple(found)


def published(timings: Sequence[Timing]) -> tuple[MeasuredPrice, ...]:
    """As the manifest has them."""
    return tuple(MeasuredPrice(timing.batch, timing.passes) for timing in timings)


def _least_seconds(*works: Callable[[], object]) -> list[float]:
    """The least seconds of some rounds, in which they take turns: other programs make a call slower, never faster."""
    once = [max(seconds_of(work, 1) for _ in range(2)) for work in works]  # first use, too
    counts = [max(1, round(ROUND_SECONDS / seconds)) for seconds in once]
    rounds = [[seconds_of(*turn) for turn in zip(works, counts, strict=True)] for _ in range(ROUNDS)]
    return [min(each) for each in zip(*rounds, strict=True)]


def seconds_of(work: Callable[[], object], count: int) -> float:
    """Seconds of this thread's processor for one call, on average; other programs do not count."""
    start = time.thread_time()
    for _ in range(count):
        work()
    return max((time.thread_time() - start) / count, LEAST_TICK)
