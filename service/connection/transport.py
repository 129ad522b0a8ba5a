"""A connection's transport that knows what its client has taken, and closes when the client takes nothing more."""

import asyncio
import fcntl
import select
import struct
import sys
import termios
from typing import Any

# A client that takes nothing is checked so many times before its connection is closed. Checks count, not seconds: after
# the event loop stood still, one check finds no progress, though nothing was sent to the client in that time.
CHECKS = 4
# Every response begins with these bytes, and a head ends with a blank line.
BEGINNING, BLANK_LINE = b"HTTP/1.1 ", b"\r\n\r\n"


class ClientTransport:
    """A transport that closes once its client has taken nothing of what was written for about `seconds`.

    That writing is paused proves nothing: a client that reads steadily, but more slowly than the service writes, is
    paused all the time. What counts is that the bytes under way become fewer, here and in the system's own buffer. This
    is watched from the first byte that has to wait until the last one has left, also while the connection closes.

    The head of a response waits for its body until the end of the event loop's iteration, and both leave together: a
    system call of its own for the head would cost as much as a good part of a small request.
    """

    def __init__(self, transport: asyncio.Transport, seconds: float, loop: asyncio.AbstractEventLoop) -> None:
        self._transport, self._seconds, self._loop = transport, seconds, loop
        self._socket = transport.get_extra_info("socket")
        self._written = self._taken = 0
        self._checks = 0
        self._write_timer: asyncio.TimerHandle | None = None
        self._linger_timer: asyncio.TimerHandle | None = None
        self._head = b""  # of a response whose body has not been written yet
        self._head_handle: asyncio.Handle | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        """Write as a transport does, soon, and watch whether the client takes it."""
        if not self._head and data.endswith(BLANK_LINE) and data.startswith(BEGINNING):
            self._head = data
            self._head_handle = self._loop.call_soon(self._flush)
            return
        if self._head_handle is not None:
            data, self._head = self._head + data, b""
            self._head_handle.cancel()
            self._head_handle = None
        self._write(data)

    def write_eof(self) -> None:
        """Write nothing more."""
        self._flush()
        self._transport.write_eof()

    def close(self) -> None:
        """Close once everything has left."""
        self._flush()
        self._transport.close()

    def get_write_buffer_size(self) -> int:
        """How many bytes have not been given to the system yet."""
        size: int = self._transport.get_write_buffer_size()
        return size + len(self._head)

    def _flush(self) -> None:
        if self._head:
            self.write(b"")

    def _write(self, data: bytes) -> None:
        self._written += len(data)
        self._transport.write(data)
        if self._write_timer is None and self._transport.get_write_buffer_size():
            self._taken, self._checks = self.taken(), 0
            self._check_later()

    def taken(self) -> int:
        """How many bytes the client's system has confirmed."""
        return self._written - self._transport.get_write_buffer_size() - self._unconfirmed()

    def has_unread(self) -> bool:
        """Whether bytes from the client, or the end of its stream, wait in the kernel."""
        if self._socket is None or self._socket.fileno() < 0:
            return False
        poll = select.poll()
        poll.register(self._socket.fileno(), select.POLLIN)
        return bool(poll.poll(0))

    def linger(self, seconds: float) -> None:
        """Close after the last response has left and the client has taken nothing for `seconds`."""
        self._linger_timer = self._loop.call_later(seconds, self._end_lingering, seconds, self.taken())

    def stop(self) -> None:
        """Cancel the timers, as the connection has ended."""
        for timer in (self._write_timer, self._linger_timer, self._head_handle):
            if timer is not None:
                timer.cancel()
        self._head, self._head_handle = b"", None

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

    def _check_later(self) -> None:
        self._write_timer = self._loop.call_later(self._seconds / CHECKS, self._check)

    def _check(self) -> None:
        self._write_timer = None
        if not self._transport.get_write_buffer_size():  # the system has the rest
            return
        before, self._taken = self._taken, self.taken()
        self._checks = 0 if self._taken > before else self._checks + 1
        if self._checks < CHECKS:
            self._check_later()
        else:
            self._transport.abort()
