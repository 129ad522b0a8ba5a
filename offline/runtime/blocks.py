"""Large matrices a few rows at a time."""

from collections.abc import Iterator

BLOCK = 256


def spans(size: int, width: int = BLOCK) -> Iterator[tuple[int, int]]:
    """(start, end) of consecutive blocks."""
    return ((start, min(start + width, size)) for start in range(0, size, width))
