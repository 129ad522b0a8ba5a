"""Time as an argument, so that tests need no sleeps. A running asyncio event loop is a `Clock`."""

from collections.abc import Callable
from typing import Protocol


class Timer(Protocol):
    """A call that is due later."""

    def cancel(self) -> None:
        """Cancel the call; does nothing once it was made."""


class Clock(Protocol):
    """Monotonic seconds, and calls at a time."""

    def time(self) -> float:
        """Seconds since an arbitrary, fixed moment."""

    def call_at(self, when: float, callback: Callable[[], None], /) -> Timer:
        """Call `callback` once `time()` has reached `when`, in the event loop's thread."""
