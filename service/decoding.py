"""A request's body -> one array (B, *input_shape), or a clear error. One function for each media type."""

import io
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from pydantic import ValidationError

from service.bundle import InputSpec
from service.inputs import (
    InputError,
    InputLimits,
    array_from_array,
    array_from_files,
    array_from_images,
    array_from_json,
    check_rows,
)
from service.json_flood import bounds_for, refuse_flood
from service.schemas import PredictRequest

Array = npt.NDArray[Any]
JSON, NPY = "application/json", "application/x-npy"
IMAGES = frozenset({"image/png", "image/jpeg", "image/webp"})
MAX_NPY_HEADER = 10_000


class NotJson(ValueError):
    """The body is not JSON at all."""


class FieldError(ValueError):
    """A field is missing, unknown, or of the wrong type."""

    def __init__(self, field: str, message: str) -> None:
        self.field = field
        super().__init__(f"{field}: {message}")


@dataclass(frozen=True)
class Decoded:
    """`array` (B, *input_shape), and the name by which the request's fields call its rows."""

    array: Array
    field: str


def from_json(body: bytes, spec: InputSpec, limits: InputLimits) -> Decoded:
    """`{"inputs": [...]}` or `{"images": [...]}`; raises `NotJson`, `FieldError` or `InputError`."""
    rows = limits.rows(spec)
    refuse_flood(body, bounds_for(spec, rows))
    request = _parse(body)
    if request.images is not None:
        return Decoded(array_from_images(request.images, spec, limits), "images")
    assert request.inputs is not None
    return Decoded(array_from_json(request.inputs, spec, rows), "inputs")


def from_files(files: list[bytes], spec: InputSpec, limits: InputLimits) -> Decoded:
    """Image files, as they are; raises `InputError`."""
    return Decoded(array_from_files(files, spec, limits), "files")


def from_npy(body: bytes, spec: InputSpec, limits: InputLimits) -> Decoded:
    """NumPy's .npy format without pickles; raises `InputError`.

    The header is compared with the length of the body before an array is made of it.
    """
    stream, most = io.BytesIO(body), limits.rows(spec)
    try:
        version = np.lib.format.read_magic(stream)
        read = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}[version]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a header in the manner of Python 2 is as good, and the log is not for it
            shape, fortran, dtype = read(stream, max_header_size=MAX_NPY_HEADER)
    except Exception as error:  # NumPy parses the header with Python's own parser, which raises many kinds
        reason = " ".join(str(error).split())[:150]
        raise InputError("body", f"bytes that are no .npy file ({reason})", "what numpy.save writes") from None
    if dtype.kind not in "iuf" or dtype.itemsize > 8:
        raise InputError("body", f"an array of {dtype!s:.50}", "whole or floating-point numbers of at most 64 bits")
    data, rows = body[stream.tell() :], shape[0] if shape else 1
    expected = dtype.itemsize * _product(shape)
    if any(type(size) is not int or size < 0 for size in shape) or len(data) != expected:
        wanted = f"{_shown(expected)} for shape {_shown(shape)} of {dtype}"
        raise InputError("body", f"{len(data)} bytes of data", wanted)
    if len(shape) == len(spec.shape) + 1:
        check_rows("body", rows, most)
    array = np.frombuffer(data, dtype).reshape(shape, order="F" if fortran else "C")
    return Decoded(array_from_array(array, spec, most, "body"), "body")


def _product(shape: tuple[int, ...]) -> int:
    total = 1
    for size in shape:
        total *= size
    return total


def _shown(value: Any) -> str:
    """Python refuses to write very long whole numbers."""
    try:
        return f"{value!s:.100}"
    except ValueError:
        return "huge numbers"


def _parse(body: bytes) -> PredictRequest:
    try:
        return PredictRequest.model_validate_json(body)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        if first["type"] == "json_invalid":
            raise NotJson(f"The body is not JSON: {first['msg']:.200}") from None
        field = ".".join(map(str, first["loc"]))[:100] or "body"
        raise FieldError(field, f"{first['msg']:.200}") from None
