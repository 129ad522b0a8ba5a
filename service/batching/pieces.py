"""Merging the rows of several requests into one batch, and splitting its result again."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol, Self, TypeVar, runtime_checkable

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
R = TypeVar("R", bound="Rows")


class Rows(Protocol):
    """A result with one entry a row, which can be sliced and concatenated."""

    def __len__(self) -> int: ...

    def rows(self, start: int, stop: int) -> Self:
        """Entries `start` to `stop`."""

    @classmethod
    def concatenate(cls, parts: Sequence[Self]) -> Self:
        """The entries of all parts in order; at least one part, all of the same kind."""


@runtime_checkable
class RowError(Protocol):
    """An error that names a row of the inputs."""

    def after(self, rows: int) -> Exception:
        """The same of inputs that come after so many others."""


def compute_merged(compute: Callable[[Array], R], inputs: Sequence[Array]) -> list[R | Exception]:
    """One result for each of `inputs`, computed as one batch.

    Where that fails, each part is computed once alone, so that one bad part does not fail the others: its exception
    takes the place of its result.
    """
    try:
        return list(split(compute(merge(inputs)), [len(part) for part in inputs]))
    except Exception as error:
        return [error] if len(inputs) == 1 else [_attempt(compute, part) for part in inputs]


def _attempt(compute: Callable[[Array], R], part: Array) -> R | Exception:
    try:
        return split(compute(part), [len(part)])[0]
    except Exception as error:
        return error


def merge(inputs: Sequence[Array]) -> Array:
    """(B_i, ...) -> (sum of B_i, ...), without a copy where there is only one."""
    return inputs[0] if len(inputs) == 1 else np.concatenate(inputs)


def split(result: R, counts: Sequence[int]) -> list[R]:
    """The result of a merged batch -> one result for each of the parts with `counts` rows."""
    if len(result) != sum(counts):
        raise ValueError(f"found a result of {len(result)} rows, expected {sum(counts)}")
    if len(counts) == 1:
        return [result]
    ends = np.cumsum(counts).tolist()
    return [result.rows(end - count, end) for end, count in zip(ends, counts, strict=True)]


def join(parts: dict[int, R]) -> R:
    """The results of a request's pieces, by their first row -> the result of the request."""
    if len(parts) == 1:
        return next(iter(parts.values()))
    ordered = [parts[start] for start in sorted(parts)]
    return type(ordered[0]).concatenate(ordered)
