"""When to ask again, and how long to wait before: a budget of time and of tries."""

import random
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from service.client.errors import ConnectionFailedError, ProbityError, TooBusyError, UnavailableError

# Predictions change nothing in the service, so that asking twice does no harm.
RETRIED = (TooBusyError, UnavailableError, ConnectionFailedError)
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 5.0
LEAST = 0.001


@dataclass(frozen=True)
class Clocks:
    """What the client reads of the world: seconds that only go forward, seconds since 1970, and chance in [0, 1)."""

    monotonic: Callable[[], float] = time.monotonic
    wall: Callable[[], float] = time.time
    chance: Callable[[], float] = random.random


class Tries:
    """One call's time, and how often it may still be tried again."""

    def __init__(self, seconds: float, retries: int, clocks: Clocks) -> None:
        self._clocks, self._retries, self._done = clocks, retries, 0
        self._end = clocks.monotonic() + seconds

    @property
    def over(self) -> bool:
        """Whether the time is used up."""
        return self._clocks.monotonic() >= self._end

    @property
    def remaining(self) -> float:
        """Seconds that are left, always more than 0."""
        return max(self._end - self._clocks.monotonic(), LEAST)

    def pause_after(self, error: ProbityError) -> float | None:
        """Seconds to wait before the next try; None: there is none, and the error stands.

        What `Retry-After` asks for, or a random share of a pause that doubles from try to try. A pause that would not
        end in time is not begun.
        """
        if not isinstance(error, RETRIED) or self._done >= self._retries:
            return None
        pause = error.retry_after
        if pause is None:
            pause = self._clocks.chance() * min(FIRST_PAUSE * 2.0 ** min(self._done, 60), LONGEST_PAUSE)
        self._done += 1
        return pause if pause < self._end - self._clocks.monotonic() else None

    def in_time(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
        """The chunks, as long as there is time; then `TimeoutError`."""
        for chunk in chunks:
            if self.over:
                raise TimeoutError("the answer did not arrive in time")
            yield chunk
