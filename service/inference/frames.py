"""Data frames, of pandas or another library with the same methods: columns are found by name, never by position."""

import numbers
import unicodedata
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ..format.text import suggestion

Array = npt.NDArray[Any]
MAX_NAMED = 5  # missing columns in one error


def is_frame(data: Any) -> bool:
    """Whether `data` has columns, as data frames do."""
    return hasattr(data, "columns") and hasattr(data, "to_numpy")


def frame_columns(frame: Any, where: str) -> tuple[str, ...] | None:
    """The names of the columns; None where they are 0, 1, ..., which pandas gives by itself.

    `ValueError` for other names that are no text: they would be taken by position, in whatever order.
    """
    names = tuple(frame.columns)
    if all(isinstance(name, str) for name in names):
        return names
    if names == tuple(range(len(names))):
        return None
    raise ValueError(
        f"{where}: found columns called {', '.join(map(repr, names))!s:.150}, expected text, or 0, 1, ... in order; "
        "name them, or give frame.to_numpy()"
    )


def frame_array(frame: Any, names: Sequence[str] | None, where: str) -> Array:
    """The columns called `names`, in their order, others left out: (n, len(names)), finite, float64.

    names: None where none are known: a frame without names gives all its columns. where: the argument, for errors.
    Raises `ValueError` for columns that are missing, twice, or hold no numbers, and where only one side has names.
    """
    found = frame_columns(frame, where)
    if found is None:
        return _finite(numbers_of(frame, where), None, where)
    if names is None:
        raise ValueError(
            f"{where}: found columns with names, expected an array: there are no feature names to compare them with; "
            "give frame.to_numpy(), with the columns in the order of the fit"
        )
    places = places_by_name(found, names, where)
    columns = [numbers_of(frame[found[place]], f"{where}, column {found[place]!r:.80}") for place in places]
    return _finite(np.stack(columns, axis=1, dtype=float), names, where)


def _finite(array: Array, names: Sequence[str] | None, where: str) -> Array:
    if not np.isfinite(array).all():
        row, column = np.argwhere(~np.isfinite(array))[0].tolist()
        title = f"{column}" if names is None else f"{names[column]!r:.80}"
        raise ValueError(f"{where}, column {title}, row {row}: found {array[row, column]}, expected a finite number")
    return array


def places_by_name(
    found: Sequence[str],
    wanted: Sequence[str],
    where: str,
    expected: str = "one of each name that the model was fitted on",
) -> list[int]:
    """Where each of `wanted` is in `found`, by the rule of `places_alike`; `ValueError` for names that are missing or
    there several times."""
    places = places_alike(found, wanted)
    missing = [name for name, alike in zip(wanted, places, strict=True) if not alike]
    if missing:
        others = [name for name in found if name not in wanted]
        shown = ", ".join(f"{name!r:.80}{suggestion(name, others)}" for name in missing[:MAX_NAMED])
        more = f", and {len(missing) - MAX_NAMED} more" if len(missing) > MAX_NAMED else ""
        raise ValueError(f"{where}: found no column {shown}{more}, expected {expected}")
    twice = [name for name, alike in zip(wanted, places, strict=True) if len(alike) > 1]
    if twice:
        raise ValueError(f"{where}: found several columns {twice[0]!r:.80}, expected one of each name")
    return [alike[0] for alike in places]


def places_alike(found: Sequence[str], wanted: Sequence[str]) -> list[list[int]]:
    """All places of each of `wanted` in `found`, or where none has the very name, of others that `plain_name` makes the
    same."""
    exact, plain = defaultdict[str, list[int]](list), defaultdict[str, list[int]](list)
    others = set(found) - set(wanted)
    for place, name in enumerate(found):
        exact[name].append(place)
        if name in others:
            plain[plain_name(name)].append(place)
    return [exact.get(name) or plain.get(plain_name(name), []) for name in wanted]


def plain_name(name: str) -> str:
    """A column's name as it is compared: without white space around it, and in Unicode's composed form."""
    return unicodedata.normalize("NFC", name).strip()


def _plain(value: Any) -> Any:
    """A NumPy scalar as Python writes it."""
    return value.item() if isinstance(value, np.generic) else value


def _refuse_other_arrays(values: Any, where: str) -> None:
    """`ValueError` for what becomes an array only by losing something."""
    if hasattr(values, "columns") and not is_frame(values):  # the names of an Arrow table
        kind = type(values).__name__
        raise ValueError(f"{where}: found a {kind}, expected an array or a data frame, such as of its to_pandas()")
    if isinstance(values, np.ma.MaskedArray) and values.mask.any():
        raise ValueError(f"{where}: found masked entries, expected numbers; fill what is missing")


def numbers_of(values: Any, where: str) -> Array:
    """A column, a frame or an array as an array of numbers; `ValueError` for anything else, naming the first."""
    _refuse_other_arrays(values, where)
    try:
        if hasattr(values, "detach"):  # a tensor, wherever it is
            values = values.detach().cpu().resolve_neg()
        array = np.asarray(values.to_numpy() if hasattr(values, "to_numpy") else values)
    except (TypeError, RuntimeError) as error:  # as of a tensor that is sparse, nested, quantised, or of half precision
        kind, reason = type(values).__name__, f"{error}".partition("\n")[0]
        raise ValueError(f"{where}: found a {kind} that is no array ({reason:.100}), expected dense float32") from None
    except ValueError:
        raise ValueError(f"{where}: found entries of different lengths, expected an array of numbers") from None
    if array.dtype.kind in "fiub":
        return array
    if not array.ndim or isinstance(next(array.flat, None), Mapping):
        found = f"{array.item()!r:.60}" if not array.ndim else "a list of mappings"
        raise ValueError(f"{where}: found {found}, expected an array or a data frame; of rows, pandas.DataFrame(rows)")
    odd = next(((i, value) for i, value in enumerate(array.ravel()) if not isinstance(value, numbers.Real)), None)
    if odd is None and array.dtype.kind == "O":
        return array.astype(np.float64)
    row, found = (0, str(array.dtype)) if odd is None else (odd[0] * len(array) // array.size, repr(_plain(odd[1])))
    raise ValueError(
        f"{where}, row {row}: found {found!s:.60}, expected a number: encode words and dates as numbers, and fill "
        "what is missing"
    )
