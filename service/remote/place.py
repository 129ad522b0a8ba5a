"""A place that holds a bundle, or is to hold one: what `pull` and `push` ask of it."""

import contextlib
import ctypes
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import BinaryIO, Protocol, TypeVar

from ..format.files import OPTIONAL_FILES, SIGNATURE, BundleError
from .errors import UnreachableError

T = TypeVar("T")
SECONDS, SLOWEST, MOST_SECONDS = 120, 2**15, 6 * 3600  # for any answer, bytes per second beyond that, and in all
Report = Callable[[int], None]
"""Called with the number of bytes that have come since the last call."""


def unheard(count: int) -> None:
    """Report nothing."""


class Place(Protocol):
    """Where a URI leads. What it holds does not change while it is open, where the place can promise that."""

    def fetch(self, name: str, file: Path, limit: int, report: Report = unheard) -> bool:
        """Write what is called `name` there to `file`; False where nothing is.

        Raises `BundleError` for more than `limit` bytes and where access is refused, and `UnreachableError`.
        """
        ...

    def store(self, files: Mapping[str, Path], replace: bool) -> str:
        """Put the files there, and take what a bundle of before left; returns the URI of just these.

        Raises `BundleError` where a bundle is there that is not to be replaced, and where access is refused.
        """
        ...

    def close(self) -> None:
        """Free what is held."""
        ...


def in_time(uri: str, size: int, work: Callable[[], T]) -> T:
    """The result of the work, which moves `size` bytes; raises what it raises, and `UnreachableError` when its time is
    over: a limit for one read waits without end for a place that sends a byte a second.

    The work has a thread of its own: a signal does not reach Python while obstore waits.
    """
    done, seconds = Future[T](), min(SECONDS + size / SLOWEST, MOST_SECONDS)

    def run() -> None:
        try:
            done.set_result(work())
        except BaseException as error:
            done.set_exception(error)

    thread = threading.Thread(target=run, name="demur-fetch", daemon=True)
    thread.start()
    try:
        thread.join(seconds)
    finally:
        if not done.done():  # end it where it next comes back from waiting for a byte, and so its connection
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident or 0), ctypes.py_object(SystemExit))
    if not done.done():
        raise UnreachableError(uri, f"did not answer whole within {seconds:.0f} s", "check the network, or try later")
    return done.result()


def write_blocks(blocks: Iterable[bytes], file: Path, uri: str, limit: int, report: Report) -> None:
    """Write the blocks one by one, and to disk; raises `BundleError` for more than `limit` bytes."""
    size = 0
    with open(file, "wb") as stream:
        for block in blocks:
            size += len(block)
            check_size(uri, size, limit)
            stream.write(block)
            report(len(block))
        stream.flush()
        os.fsync(stream.fileno())


def check_size(uri: str, size: int, limit: int) -> None:
    """`BundleError` for more than `limit` bytes."""
    if size > limit:
        raise BundleError(uri, f"found {size} bytes or more, expected at most {limit}", "push the bundle again")


def refuse_bundle_there(uri: str, another: str) -> None:
    """Raises `BundleError`: what is there is not to be replaced. another: what to choose in its place."""
    raise BundleError(uri, "holds a bundle", f"replace it with --force, or choose another {another}")


@contextlib.contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """The file to read from; `BundleError` where it cannot be."""
    try:
        with open(path, "rb") as stream:
            yield stream
    except OSError as error:
        raise BundleError(path, f"cannot be read ({error.strerror or error})") from error


def left_over(files: Iterable[str]) -> list[str]:
    """The names that a bundle of before may have had, and these files have not: a reader would refuse them."""
    return sorted({*OPTIONAL_FILES, SIGNATURE} - {*files})
