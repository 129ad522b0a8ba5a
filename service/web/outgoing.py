"""The writing side of a connection: what a client has taken of its answers, and when it takes no more."""

import asyncio
import fcntl
import select
import struct
import sys
import termios
from typing import Any

# A client that takes nothing is looked at so many times before it is given up. Looks are counted, not seconds: after
# the event loop stood still, one look finds nothing new, though the client was not asked in that time.
LOOKS = 4
# Every answer begins with these bytes.
BEGINNING = b"HTTP/1.1 "


class Outgoing:
    """A transport that is closed once its client has taken nothing of what was written for about `seconds`.

    A pause says nothing about that: a client that reads steadily, and more slowly than the service writes, is paused
    all the time. What counts is that the bytes on their way become fewer, here and in the system's own buffer. It is
    watched from the first byte that has to wait until the last one has left, also while the connection is closing.
    """

    def __init__(self, transport: asyncio.Transport, seconds: float, loop: asyncio.AbstractEventLoop) -> None:
        self._transport, self._seconds, self._loop = transport, seconds, loop
        self._socket = transport.get_extra_info("socket")
        self._written = self._taken = 0
        self._looks = 0
        self._timer: asyncio.TimerHandle | None = None
        self._lingering: asyncio.TimerHandle | None = None
        self._begun = b""  # of the next answer, what was sent already

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        """As a transport's `write`."""
        data = data.removeprefix(self._begun)
        self._begun = b""
        self._written += len(data)
        self._transport.write(data)
        if self._timer is None and self._transport.get_write_buffer_size():
            self._taken, self._looks = self.taken(), 0
            self._look_later()

    def begin(self) -> None:
        """Send the beginning of the next answer, whatever that will be: a client that has gone refuses it."""
        self.write(BEGINNING)
        self._begun = BEGINNING

    def taken(self) -> int:
        """How many bytes the client's side has confirmed."""
        return self._written - self._transport.get_write_buffer_size() - self._unconfirmed()

    def refused(self) -> bool:
        """Whether the client's side has refused what was sent: nobody is there any more."""
        poll = select.poll()
        poll.register(self._socket.fileno(), 0)
        return bool(poll.poll(0))

    def linger(self, seconds: float) -> None:
        """Close when the client has taken nothing for so long: after the last answer, and not before that has left."""
        self._lingering = self._loop.call_later(seconds, self._end_lingering, seconds, self.taken())

    def stop(self) -> None:
        """The connection has ended."""
        for timer in (self._timer, self._lingering):
            if timer is not None:
                timer.cancel()

    def _end_lingering(self, seconds: float, taken: int) -> None:
        if self.taken() > taken or self._transport.get_write_buffer_size():
            self.linger(seconds)
        else:
            self._transport.abort()

    def _unconfirmed(self) -> int:
        descriptor = -1 if self._socket is None else self._socket.fileno()
        if sys.platform != "linux" or descriptor < 0:
            return 0
        return int(struct.unpack("i", fcntl.ioctl(descriptor, termios.TIOCOUTQ, b"\0" * 4))[0])

    def _look_later(self) -> None:
        self._timer = self._loop.call_later(self._seconds / LOOKS, self._look)

    def _look(self) -> None:
        self._timer = None
        if not self._transport.get_write_buffer_size():  # the rest is with the system
            return
        before, self._taken = self._taken, self.taken()
        self._looks = 0 if self._taken > before else self._looks + 1
        if self._looks < LOOKS:
            self._look_later()
        else:
            self._transport.abort()
