"""A request's body -> one array (B, *input_shape), or an error. One function for each media type."""

import codecs
import io
import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ValidationError

from ..bundle import InputSpec
from ..format.json_names import NameTwice, check_names_once
from ..format.validation import refused_field
from ..schemas import PredictRequest
from .arrays import InputError, InputLimits, array_from_array, array_from_json, array_from_named, check_rows
from .encoded_images import ImageTexts
from .images import check_images
from .json_limits import check_json_size, json_limits_for
from .plain_texts import PlainTexts

Array = npt.NDArray[Any]
M = TypeVar("M", bound=BaseModel)
JSON, NPY = "application/json", "application/x-npy"
IMAGES = frozenset({"image/png", "image/jpeg", "image/webp"})
MAX_NPY_HEADER = 10_000


class NotJson(ValueError):
    """The body is not JSON."""


class FieldError(ValueError):
    """A field is missing, unknown, or of the wrong type."""

    def __init__(self, field: str, message: str) -> None:
        self.field = field
        super().__init__(f"{field}: {message}")


@dataclass(frozen=True)
class Decoded:
    """`array` (B, *input_shape), the request's name for it, for errors and warnings, and warnings from decoding it."""

    array: Array
    field: str
    warnings: Sequence[str] = ()


def from_json(body: bytes, spec: InputSpec, limits: InputLimits) -> Decoded | ImageTexts | PlainTexts:
    """`{"inputs": [...]}`, or `{"images": [...]}` or `{"texts": [...]}`, not decoded yet; raises `NotJson`,
    `FieldError` or `InputError`."""
    rows = limits.rows(spec)
    check_json_size(body, json_limits_for(spec, rows))
    request = parse_json(body, PredictRequest)
    if request.images is not None:
        check_images("images", len(request.images), spec, rows)
        return ImageTexts(request.images, "images")
    if request.texts is not None:
        texts = PlainTexts(request.texts, "texts")
        texts.check(spec, limits)
        return texts
    assert request.inputs is not None
    if spec.text is not None and isinstance(request.inputs, list) and any(type(x) is str for x in request.inputs[:1]):
        raise InputError("inputs", "texts", 'them in "texts"')
    if isinstance(request.inputs, dict):
        return Decoded(array_from_named(request.inputs, spec, rows), "inputs")
    if spec.parts is not None:
        expected = f"an object with the inputs {', '.join(repr(part.name) for part in spec.parts)}"
        raise InputError("inputs", "a list", expected)
    return Decoded(array_from_json(request.inputs, spec, rows), "inputs")


def from_npy(body: bytes, spec: InputSpec, limits: InputLimits) -> Decoded:
    """NumPy's .npy format without pickles; raises `InputError`.

    The header is compared with the length of the body before an array is made of it.
    """
    stream, most = io.BytesIO(body), limits.rows(spec)
    try:
        version = np.lib.format.read_magic(stream)
        read = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}[version]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a header written by Python 2 is fine
            shape, fortran, dtype = read(stream, max_header_size=MAX_NPY_HEADER)
    except Exception as error:  # NumPy parses the header with Python's own parser, which raises many kinds
        reason = " ".join(str(error).split())[:150]
        raise InputError("body", f"bytes that are not an .npy file ({reason})", "what numpy.save writes") from None
    if dtype.kind not in "iuf" or dtype.itemsize > 8:
        raise InputError("body", f"an array of {dtype!s:.50}", "whole or floating-point numbers of at most 64 bits")
    data = memoryview(body)[stream.tell() :]
    rows = _check_npy_shape(shape, spec)
    expected = dtype.itemsize * math.prod(shape)
    if len(data) != expected:
        wanted = f"{_shown(expected)} for shape {_shown(shape)} of {dtype}"
        raise InputError("body", f"{len(data)} bytes of data", wanted)
    check_rows("body", rows, most)
    array = np.frombuffer(data, dtype).reshape(shape, order="F" if fortran else "C")
    return Decoded(array_from_array(array, spec, most, "body"), "body")


def _check_npy_shape(shape: tuple[Any, ...], spec: InputSpec) -> int:
    """The number of examples; raises `InputError` for other shapes than the model's, before NumPy sees them.

    NumPy raises errors of its own for some shapes without elements, and for those of more than 64 dimensions.
    """
    one = len(shape) == len(spec.shape)
    rows: int
    rows, example = (1, shape) if one else (shape[0] if shape else 0, shape[1:])
    if any(type(size) is not int for size in shape) or example != spec.shape or rows < 1:
        expected = f"({', '.join(map(str, ('batch', *spec.shape)))}{'' if spec.shape else ','})"
        found = f"shape {_shown(shape)}"
        raise InputError("body", found, f"shape {expected} of at least one example, or one without the batch")
    return rows


def _shown(value: Any) -> str:
    """The value as text, also where Python refuses to write a very long integer."""
    try:
        return f"{value!s:.100}"
    except ValueError:
        return "huge numbers"


def parse_json(body: bytes, kind: type[M]) -> M:
    """The body as a model of pydantic; raises `NotJson` and `FieldError`."""
    try:
        check_names_once(body)
        return kind.model_validate_json(body.removeprefix(codecs.BOM_UTF8))
    except NameTwice as error:
        raise FieldError(f"{error.name:.80}", f"found {error}, expected each name once") from None
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        if first["type"] == "json_invalid":
            raise NotJson(f"The body is not JSON: {first['msg']:.200}") from None
        places = [
            str(place) for place in first["loc"] if place not in ("list[any]", "dict[str,any]")
        ]  # kinds, not places
        field = ".".join(places)[:100] or "body"
        raise FieldError(field, f"{refused_field(first, kind.model_fields):.200}") from None
