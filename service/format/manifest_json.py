"""JSON and frozen dataclasses: the strict reader, the writer, and fields that came with a minor version.

Knows no manifest in particular. Pure standard library, so that the contract between the offline job and the service
can be read and checked anywhere.
"""

import dataclasses
import math
import types
import typing
from typing import Any, Literal

ADDED_IN = "added_in"
MAX_DEPTH = 32


class ManifestError(ValueError):
    """A manifest field is missing, unknown, or holds a value of the wrong type."""


def added_in(minor: int) -> dict[str, int]:
    """Metadata of a dataclass field that came with minor version `minor` of the format.

    The field needs a default: what a manifest of an earlier version means.
    """
    return {ADDED_IN: minor}


def check_fields(where: str, part: object, *rules: tuple[str, bool, str]) -> None:
    """`ManifestError` for the first rule (field, whether it holds, what is expected) that does not hold."""
    for name, holds, expected in rules:
        if not holds:
            place = f"{where}.{name}".lstrip(".")
            raise ManifestError(f"{place}: found {getattr(part, name)!r:.100}, expected {expected}")


def to_json(value: Any) -> Any:
    """Plain JSON data of a manifest dataclass."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: to_json(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {key: to_json(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [to_json(item) for item in value]
    return value


@dataclasses.dataclass(frozen=True)
class Reading:
    """The minor version that a document was written in, and the one that this reader knows."""

    written: int
    known: int


def convert(value: Any, kind: Any, where: str, reading: Reading) -> Any:
    """`value` as the annotated type `kind`, or a `ManifestError` that names the place `where`.

    Objects become dataclasses. Fields that came after the version written must be absent and take their defaults;
    unknown fields are ignored in documents later than this reader only.
    """
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if dataclasses.is_dataclass(kind):
        return _convert_object(value, typing.cast(type, kind), where, reading)
    if origin in (typing.Union, types.UnionType):
        (inner,) = (argument for argument in arguments if argument is not type(None))
        return None if value is None else convert(value, inner, where, reading)
    if origin is Literal:
        if value in arguments and isinstance(value, str):
            return value
        raise ManifestError(f"{where}: found {value!r:.100}, expected one of {', '.join(map(repr, arguments))}")
    if origin is tuple and isinstance(value, list):
        return tuple(convert(item, arguments[0], f"{where}[{i}]", reading) for i, item in enumerate(value))
    if origin is dict and isinstance(value, dict):
        return {
            _convert_scalar(key, str, where): convert(item, arguments[1], f"{where}.{key:.100}", reading)
            for key, item in value.items()
        }
    return _convert_scalar(value, kind, where)


def _convert_scalar(value: Any, kind: Any, where: str) -> Any:
    if kind is Any:
        _check_plain(value, where, MAX_DEPTH)
        return value
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if kind is float and is_number and -1e300 < value < 1e300 and math.isfinite(value):
        return float(value)
    if kind is int and isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**63:
        return value
    if kind is bool and isinstance(value, bool):
        return value
    if kind is str and isinstance(value, str) and _is_text(value):
        return value
    name = getattr(typing.get_origin(kind) or kind, "__name__", str(kind))
    raise ManifestError(f"{where}: found {value!r:.100}, expected {name}")


def _is_text(value: str) -> bool:
    """Whether it can be written as UTF-8: JSON may spell lone surrogates."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _check_plain(value: Any, where: str, depth: int) -> None:
    """Refuse what could be read but not be answered: infinities, lone surrogates, nesting without end."""
    if isinstance(value, dict | list) and depth > 0:
        for item in (*value, *value.values()) if isinstance(value, dict) else value:
            _check_plain(item, where, depth - 1)
        return
    is_text = isinstance(value, str) and _is_text(value)
    is_finite = isinstance(value, float) and math.isfinite(value)
    is_whole = value is None or (isinstance(value, int) and abs(value) < 2**63)
    if not (is_text or is_finite or is_whole):
        raise ManifestError(f"{where}: found {value!r:.100}, expected plain JSON data")


def _convert_object(value: Any, kind: type, where: str, reading: Reading) -> Any:
    if not isinstance(value, dict):
        raise ManifestError(f"{where or 'manifest'}: found {value!r:.100}, expected an object")
    hints = typing.get_type_hints(kind)
    names = [f.name for f in dataclasses.fields(kind) if f.metadata.get(ADDED_IN, 0) <= reading.written]
    for name in value:
        if name not in names and reading.written <= reading.known:
            raise ManifestError(f"{where}.{name:.100}".lstrip(".") + ": unknown field")
    for name in names:
        if name not in value:
            raise ManifestError(f"{where}.{name}".lstrip(".") + ": missing field")
    return kind(**{name: convert(value[name], hints[name], f"{where}.{name}".lstrip("."), reading) for name in names})
