"""The end of a listening socket: no connection is lost that a client believes to be established."""

import contextlib
import ctypes
import errno
import resource
import socket
import struct
import sys
from collections.abc import Iterator
from pathlib import Path

# Linux decides with a program (classic BPF) which packets a socket takes: code, jump if true, jump if false, value.
SO_ATTACH_FILTER = 26
LOAD_BYTE, JUMP_IF_SET, RETURN = 0x30, 0x45, 0x06
FLAGS_OFFSET, SYN, EVERYTHING = 13, 0x02, 0xFFFFFFFF
NO_SYN = ((LOAD_BYTE, 0, 0, FLAGS_OFFSET), (JUMP_IF_SET, 0, 1, SYN), (RETURN, 0, 0, 0), (RETURN, 0, 0, EVERYTHING))
NO_DESCRIPTORS = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


# Files that the process may open, so that connections take at most some 250 MB; and how many of these are not for them.
MOST_FILES, SPARE_FILES = 16_384, 100
LEAST_FILES = 256  # with fewer, a few clients would leave none for health checks


class OutOfDescriptors(Exception):
    """Connections wait, and the process may open no more file descriptors."""


def too_few_files() -> str | None:
    """What to say where the process may open too few files; None where it may open enough."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if hard == resource.RLIM_INFINITY or hard >= LEAST_FILES:
        return None
    return (
        f"open files: found a limit of {hard}, expected at least {LEAST_FILES}, and better {MOST_FILES}: each "
        "connection is one; raise it where the service is started (ulimit -n, LimitNOFILE=, --ulimit nofile=)"
    )


def most_connections() -> int:
    """How many connections the process may hold beside the files that are open now; raises its soft limit of open files
    first, which is often 1,024 where the hard one is far higher."""
    soft, hard = (MOST_FILES if n == resource.RLIM_INFINITY else n for n in resource.getrlimit(resource.RLIMIT_NOFILE))
    wanted = min(hard, MOST_FILES)
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    return max(1, wanted - len(list(Path("/dev/fd").iterdir())) - SPARE_FILES)


def refuse_new_connections(listener: int) -> None:
    """Begin no more handshakes on this listening socket, but complete those under way; does nothing except on Linux.

    Otherwise a client may connect between the last `accept` and the close of the socket: it sends its request and is
    reset. A client that is refused here tries again after a second, when nobody listens any more, or the next process.
    """
    if sys.platform != "linux":
        return
    program = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *instruction) for instruction in NO_SYN))
    described = struct.pack("HP", len(NO_SYN), ctypes.addressof(program))
    with _borrowed(listener) as borrowed, contextlib.suppress(OSError):  # some sandboxes have no filters
        borrowed.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, described)


def accept_waiting(listener: int) -> Iterator[socket.socket]:
    """Accept every connection that waits; raises `OutOfDescriptors` where some have to go on waiting."""
    with _borrowed(listener) as borrowed:
        while True:
            try:
                yield borrowed.accept()[0]
            except BlockingIOError:
                return
            except ConnectionError:  # this client is gone again
                continue
            except OSError as error:
                if error.errno in NO_DESCRIPTORS:
                    raise OutOfDescriptors from error
                raise


@contextlib.contextmanager
def _borrowed(listener: int) -> Iterator[socket.socket]:
    """A socket object around a descriptor that others own; creating it takes no descriptor."""
    borrowed = socket.socket(fileno=listener)
    try:
        borrowed.setblocking(False)
        yield borrowed
    finally:
        borrowed.detach()
