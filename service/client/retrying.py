"""Decide when to retry: a budget of time and of attempts for each call."""

import random
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from .errors import ConnectionFailedError, DemurError, TooBusyError, UnavailableError

# Predictions change nothing in the service, so a request may be sent twice.
RETRIED = (TooBusyError, UnavailableError, ConnectionFailedError)
FIRST_PAUSE, MAX_PAUSE = 0.1, 5.0
LEAST = 0.001


@dataclass(frozen=True)
class Clocks:
    """The client's clocks and chance: monotonic seconds, seconds since 1970, random numbers in [0, 1)."""

    monotonic: Callable[[], float] = time.monotonic
    wall: Callable[[], float] = time.time
    chance: Callable[[], float] = random.random


class Tries:
    """The time and the retries that are left to one call."""

    def __init__(self, seconds: float, retries: int, clocks: Clocks) -> None:
        self._clocks, self._retries, self._done = clocks, retries, 0
        self._end = clocks.monotonic() + seconds

    @property
    def over(self) -> bool:
        """Whether the time is used up."""
        return self._clocks.monotonic() >= self._end

    @property
    def remaining(self) -> float:
        """Seconds left, always above 0."""
        return max(self._end - self._clocks.monotonic(), LEAST)

    def pause_after(self, error: DemurError) -> float | None:
        """Seconds to wait before the next attempt; None: no retry, raise the error.

        The wait is that of `Retry-After`, or a random share of a pause that doubles from attempt to attempt. None
        where it would not end in time.
        """
        if not isinstance(error, RETRIED) or self._done >= self._retries:
            return None
        pause = error.retry_after
        if pause is None:
            pause = self._clocks.chance() * min(FIRST_PAUSE * 2.0 ** min(self._done, 60), MAX_PAUSE)
        self._done += 1
        return pause if pause < self._end - self._clocks.monotonic() else None

    def in_time(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
        """The chunks while time is left, then `TimeoutError`."""
        for chunk in chunks:
            if self.over:
                raise TimeoutError("the answer did not arrive in time")
            yield chunk
