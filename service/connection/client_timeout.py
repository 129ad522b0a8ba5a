"""A timer for what a client owes, which does not blame the client for a busy machine."""

import asyncio
from collections.abc import Callable

# An expired timer waits so much longer where the client's bytes have arrived: the event loop reads them in less.
GRACE_SECONDS = 0.05


class ClientTimeout:
    """Call `on_timeout` in time, and a little later where `has_unread` shows that bytes have come in the meantime.

    A process that had no processor for a while finds its timers expired before it has read what arrived in time.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, has_unread: Callable[[], bool], on_timeout: Callable[[], None]
    ) -> None:
        self._loop, self._has_unread, self._on_timeout = loop, has_unread, on_timeout
        self._timer: asyncio.TimerHandle | None = None

    def start(self, seconds: float) -> None:
        """Run out after `seconds`; a timer that runs already goes on."""
        if self._timer is None:
            self._timer = self._loop.call_later(seconds, self._expire)

    def cancel(self) -> None:
        """Do not run out."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _expire(self) -> None:
        if self._has_unread():
            self._timer = self._loop.call_later(GRACE_SECONDS, self._time_out)
        else:
            self._time_out()

    def _time_out(self) -> None:
        self._timer = None
        self._on_timeout()
