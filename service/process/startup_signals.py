"""Signals while the process starts. This module imports next to nothing, as it runs before all slow imports."""

import os
import signal
import sys
import threading
from types import FrameType


class Terminated(BaseException):
    """SIGTERM came while a command runs that has something to clear away.

    Neither `Exception` nor `SystemExit`: code of the user's that is running then may catch these, or seem to raise
    them.
    """


class StartupSignals:
    """From its construction on, SIGTERM ends the process at once with status 0: no request has come yet.

    The kernel ignores signals without a handler for process 1 of a container. A handler in Python alone runs late: only
    once the library returns that is loading a large network. So a thread waits for the signal, too.

    Signals that ask a service that runs for something do nothing yet, and keep the kernel from ending the process.
    """

    def __init__(self) -> None:
        signal.signal(signal.SIGTERM, self._exit)
        asking = (signal.SIGUSR1, signal.SIGUSR2) if in_terminal() else (signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP)
        for number in asking:
            if signal.getsignal(number) is signal.SIG_DFL:
                signal.signal(number, _ignore)  # SIG_IGN would seem to be nohup's, and be inherited
        self._reader, writer = os.pipe()
        os.set_blocking(writer, False)
        self._writer, self._previous = writer, signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        threading.Thread(target=self._wait, name="startup-signals", daemon=True).start()

    @classmethod
    def current(cls) -> "StartupSignals | None":
        """The instance whose handler is installed."""
        owner = getattr(signal.getsignal(signal.SIGTERM), "__self__", None)
        return owner if isinstance(owner, cls) else None

    def stop(self) -> None:
        """Leave signals to the event loop; until it runs, the handler still ends the process."""
        signal.set_wakeup_fd(self._previous)
        os.write(self._writer, bytes([0]))

    def _wait(self) -> None:
        while number := os.read(self._reader, 1)[0]:
            if number == signal.SIGTERM:
                os._exit(0)
        os.close(self._reader)
        os.close(self._writer)

    def _exit(self, _number: int, _frame: FrameType | None) -> None:
        os._exit(0)


def in_terminal() -> bool:
    """Whether this process was started in a terminal, whose end SIGHUP tells."""
    return sys.stdin is not None and not sys.stdin.closed and sys.stdin.isatty()


def _ignore(_number: int, _frame: FrameType | None) -> None:
    """Do nothing."""
