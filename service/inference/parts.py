"""Several named inputs as one: the entries of each example side by side, in the order of the manifest."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ..format.manifest_input import InputPart
from ..format.text import suggestion
from .frames import is_frame, numbers_of, places_alike

Array = npt.NDArray[Any]
LARGEST_WHOLE = 2**24  # float32 holds all whole numbers up to this one


class PartsError(ValueError):
    """Several inputs that the network cannot take: which, what was found, what was expected."""

    def __init__(self, field: str, found: str, expected: str) -> None:
        self.field, self.found, self.expected = field, found, expected
        super().__init__(f"{field}: found {found}, expected {expected}")

    def __reduce__(self) -> tuple[type["PartsError"], tuple[str, str, str]]:
        return PartsError, (self.field, self.found, self.expected)


def by_parts(named: Mapping[str, Any], parts: Sequence[InputPart], where: str) -> dict[str, Any]:
    """The inputs by the names of their parts, which are compared as those of columns are (`places_alike`); raises
    `PartsError` for inputs that are missing or not known."""
    names, keys = [part.name for part in parts], list(named)
    places = places_alike(keys, names)
    known, expected = {place for alike in places for place in alike[:1]}, ", ".join(map(repr, names))
    unknown = next((key for place, key in enumerate(keys) if place not in known), None)
    if unknown is not None:
        raise PartsError(where, f"{unknown!r:.80}{suggestion(unknown, names)}", expected)
    missing = next((name for name, alike in zip(names, places, strict=True) if not alike), None)
    if missing is not None:
        raise PartsError(where, f"no {missing!r:.80}", expected)
    return {name: named[keys[alike[0]]] for name, alike in zip(names, places, strict=True)}


def packed(named: Mapping[str, Any], parts: Sequence[InputPart], where: str) -> Array:
    """Inputs by name, (B, *shape) each, as the network takes them together: (B, F) float32.

    Raises `PartsError` for missing or unknown names, other shapes, unequal lengths, and whole numbers that float32 does
    not hold.
    """
    named, found = by_parts(named, parts, where), []
    for part in parts:
        if is_frame(named[part.name]):
            raise PartsError(f"{where}[{part.name!r}]", "a data frame", "an array, such as of frame.to_numpy()")
        values = numbers_of(named[part.name], f"{where}[{part.name!r}]")
        if values.shape[1:] != part.shape or not len(values):
            expected = f"(batch of at least 1, {', '.join(map(str, part.shape))})"
            raise PartsError(f"{where}[{part.name!r}]", f"shape {values.shape}", expected)
        found.append(check_whole(values, part, f"{where}[{part.name!r}]").reshape(len(values), -1))
    lengths = {part.name: len(values) for part, values in zip(parts, found, strict=True)}
    if len(set(lengths.values())) > 1:
        raise PartsError(where, f"{lengths} examples", "as many of each input")
    return np.concatenate(found, axis=1, dtype=np.float32, casting="unsafe")


def check_whole(values: Array, part: InputPart, where: str) -> Array:
    """The values; `PartsError` for numbers that are not of the input's type, or that float32 would change."""
    if part.dtype == "float32":
        return values
    whole = values.dtype.kind in "iub" or bool((values == np.round(values)).all())
    if not whole or (values.size and np.abs(values.astype(np.float64)).max() > LARGEST_WHOLE):
        raise PartsError(where, f"other numbers than whole ones up to {LARGEST_WHOLE}", part.dtype)
    return values
