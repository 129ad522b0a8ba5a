"""A manifest as JSON data: written, and read back by pydantic. What a reader refuses has a place and a reason."""

import dataclasses
import functools
import json
import math
from typing import Any

from pydantic import TypeAdapter, ValidationError

from .manifest import FORMAT_MAJOR, FORMAT_MINOR, FORMAT_VERSION, Manifest
from .manifest_input import InputSpec
from .rules import FieldNameError, ManifestError
from .validation import JSON_EXPECTED, expected_of

MAX_DEPTH = 34  # the options of a strategy stand at level 2, and may be as deep as 32
LARGEST_FLOAT, LARGEST_INT = 1e300, 2**63


def to_json(manifest: Manifest) -> dict[str, Any]:
    """The manifest as plain data."""
    document = dataclasses.asdict(manifest)
    parts = [(manifest.input.image, document["input"]["image"])]
    parts += [(getattr(manifest, n), document[n]) for n in ("input", "calibration", "added_weights", "verification")]
    for part, data in parts:
        for name in () if part is None else type(part).left_out:
            if data[name] is None:
                del data[name]
    return document


def manifest_from_json(data: Any) -> Manifest:
    """Fill a `Manifest` from parsed JSON.

    A field of the wrong type, a missing field, and an unknown field raise `ManifestError`; unknown fields of a later
    minor version are ignored.
    """
    if not isinstance(data, dict) or data.get("format") != "demur-bundle":
        raise ManifestError("format: expected 'demur-bundle' at the top of the manifest; is this a bundle?")
    later = _is_later(data.get("format_version"))
    _check_plain(data, "", MAX_DEPTH)
    try:
        return manifest_adapter().validate_json(json.dumps(data), context=later)
    except ValidationError as error:
        newer = f"; found format_version {data['format_version']}: a later release may read it" if later else ""
        raise ManifestError(f"{_explained(error)}{newer}") from None


def check_input(spec: InputSpec) -> InputSpec:
    """The spec as a reader of the bundle will see it; `ManifestError` where the reader would refuse it."""
    data = dataclasses.asdict(spec)
    try:
        return TypeAdapter(InputSpec).validate_json(json.dumps(data, default=repr), context=False)
    except ValidationError as error:
        raise _explained(error) from None


@functools.cache
def manifest_adapter() -> TypeAdapter[Manifest]:
    """What reads a manifest; its making takes time."""
    return TypeAdapter(Manifest)


def _explained(error: ValidationError) -> ManifestError:
    """The first thing that is wrong: its place, what was found, what was expected."""
    first = error.errors(include_url=False)[0]
    place, cause = first["loc"], first.get("ctx", {}).get("error")
    if isinstance(cause, FieldNameError):
        return ManifestError(f"{_place_text((*place, cause.name))}: {cause.problem}")
    if isinstance(cause, ManifestError):
        return cause
    expected = expected_of(first, JSON_EXPECTED)
    return ManifestError(f"{_place_text(place)}: found {first['input']!r:.100}, expected {expected}")


def _place_text(place: tuple[int | str, ...]) -> str:
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part:.100}" for part in place).lstrip(".")


def _check_plain(value: Any, where: str, depth: int) -> None:
    """Refuse what could be read but not be answered: infinities, lone surrogates, nesting without end."""
    if isinstance(value, dict | list | tuple) and depth > 0:
        items = value.items() if isinstance(value, dict) else ((i, item) for i, item in enumerate(value))
        for key, item in items:
            place = f"{where}[{key}]" if isinstance(key, int) else f"{where}.{key:.100}".lstrip(".")
            if isinstance(key, str):
                _check_plain(key, place, 0)
            _check_plain(item, place, depth - 1)
    elif not _is_plain(value):
        raise ManifestError(f"{where}: found {value!r:.100}, expected plain JSON data: text, finite numbers, null")


def _is_plain(value: Any) -> bool:
    if isinstance(value, str):
        return _is_text(value)
    if isinstance(value, float):
        return math.isfinite(value) and abs(value) < LARGEST_FLOAT
    return value is None or (isinstance(value, int) and abs(value) < LARGEST_INT)


def _is_text(value: str) -> bool:
    """Whether it can be written as UTF-8: JSON may spell lone surrogates."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _is_later(version: Any) -> bool:
    """Whether the minor version is later than this reader's; `ManifestError` for another major version."""
    parts = version.split(".") if isinstance(version, str) else []
    if len(parts) != 2 or not all(part.isdecimal() and part.isascii() and len(part) < 6 for part in parts):
        raise ManifestError(f"format_version: found {version!r:.100}, expected '{FORMAT_VERSION}'")
    major, minor = (int(part) for part in parts)
    if major != FORMAT_MAJOR:
        raise ManifestError(
            f"format_version: found {version!r:.100}, this release reads major version {FORMAT_MAJOR}; "
            "install a release that reads it, or fit the bundle again with this one"
        )
    return minor > FORMAT_MINOR
