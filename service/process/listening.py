"""The end of a listening socket: no connection is lost that a client believes to have been made."""

import contextlib
import ctypes
import errno
import socket
import struct
import sys
from collections.abc import Iterator

# Linux: which packets a socket takes is decided by a program of instructions (code, jump if true, if false, value).
SO_ATTACH_FILTER = 26
LOAD_BYTE, JUMP_IF_SET, RETURN = 0x30, 0x45, 0x06
FLAGS_OFFSET, SYN, EVERYTHING = 13, 0x02, 0xFFFFFFFF
NO_SYN = ((LOAD_BYTE, 0, 0, FLAGS_OFFSET), (JUMP_IF_SET, 0, 1, SYN), (RETURN, 0, 0, 0), (RETURN, 0, 0, EVERYTHING))
NO_HANDLES = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


class OutOfHandles(Exception):
    """Connections wait, and the process may not open another file."""


def refuse_new_connections(listener: int) -> None:
    """Begin no more handshakes on this listening socket, and complete those that were begun, where the
    system can do so.

    Otherwise there is always a client that connects between the last `accept` and the close of the socket: it sends
    its request, and is reset. One that is refused so asks again a second later, and then nobody listens, or the next
    process does.
    """
    if sys.platform != "linux":
        return
    program = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *instruction) for instruction in NO_SYN))
    described = struct.pack("HP", len(NO_SYN), ctypes.addressof(program))
    with _borrowed(listener) as borrowed, contextlib.suppress(OSError):  # a sandbox that has no such thing
        borrowed.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, described)


def accept_waiting(listener: int) -> Iterator[socket.socket]:
    """Every connection that waits; raises `OutOfHandles` where some have to wait on."""
    with _borrowed(listener) as borrowed:
        while True:
            try:
                yield borrowed.accept()[0]
            except BlockingIOError:
                return
            except ConnectionError:  # this client has gone again
                continue
            except OSError as error:
                if error.errno in NO_HANDLES:
                    raise OutOfHandles from error
                raise


@contextlib.contextmanager
def _borrowed(listener: int) -> Iterator[socket.socket]:
    """A socket object around a handle that stays somebody else's: making it takes no handle."""
    borrowed = socket.socket(fileno=listener)
    try:
        borrowed.setblocking(False)
        yield borrowed
    finally:
        borrowed.detach()
