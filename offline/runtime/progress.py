"""Progress of long work: a callable that wraps an iterable. The library is silent by default."""

from collections.abc import Callable, Iterable
from typing import Protocol, TypeVar

T = TypeVar("T")


class Track(Protocol):
    """Yield the items and report progress. `total` None: not known."""

    def __call__(self, items: Iterable[T], description: str, total: int | None = None) -> Iterable[T]: ...


def silent(items: Iterable[T], description: str, total: int | None = None) -> Iterable[T]:  # noqa: ARG001
    """No report."""
    return items


def length_of(items: Iterable[T]) -> int | None:
    """len(items) where it has one."""
    try:
        return len(items)  # type: ignore[arg-type]
    except TypeError:
        return None


def one_step(track: Track, description: str, work: Callable[[], T]) -> T:
    """Work that has no inner loop, shown as one step."""
    (result,) = [work() for _ in track((None,), description, 1)]
    return result


def readable_seconds(seconds: float) -> str:
    """A readable duration."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
