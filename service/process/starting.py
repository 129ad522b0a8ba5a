"""SIGTERM while the process starts. It imports next to nothing, as it comes before everything that takes long."""

import os
import signal
import threading
from types import FrameType


class Starting:
    """From its making on, SIGTERM ends the process at once, with status 0: nothing was asked of it yet.

    The kernel ignores signals without a handler for process 1 of a container. A handler in Python alone runs late: not
    before the library returns that loads a large network just now. So a thread waits for the signal too.
    """

    def __init__(self) -> None:
        signal.signal(signal.SIGTERM, self._end)
        self._told, tell = os.pipe()
        os.set_blocking(tell, False)
        self._tell, self._before = tell, signal.set_wakeup_fd(tell, warn_on_full_buffer=False)
        threading.Thread(target=self._wait, name="starting", daemon=True).start()

    @classmethod
    def current(cls) -> "Starting | None":
        """The one whose handler is set."""
        owner = getattr(signal.getsignal(signal.SIGTERM), "__self__", None)
        return owner if isinstance(owner, cls) else None

    def over(self) -> None:
        """The event loop hears of signals from now on; where there is none yet, the handler still ends the process."""
        signal.set_wakeup_fd(self._before)
        os.write(self._tell, bytes([0]))

    def _wait(self) -> None:
        while number := os.read(self._told, 1)[0]:
            if number == signal.SIGTERM:
                os._exit(0)
        os.close(self._told)
        os.close(self._tell)

    def _end(self, _number: int, _frame: FrameType | None) -> None:
        os._exit(0)
