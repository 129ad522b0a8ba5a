"""Tensors of gRPC messages <-> those of the HTTP protocol, whose bytes are the same."""

from typing import Any

import numpy as np

from ..oip.datatypes import BYTES, LENGTH, NUMPY, Array
from ..oip.errors import RequestError

# The field of InferTensorContents for each datatype, and the type of its numbers.
CONTENTS = {
    "BOOL": ("bool_contents", np.bool_),
    "INT8": ("int_contents", np.int32),
    "INT16": ("int_contents", np.int32),
    "INT32": ("int_contents", np.int32),
    "INT64": ("int64_contents", np.int64),
    "UINT8": ("uint_contents", np.uint32),
    "UINT16": ("uint_contents", np.uint32),
    "UINT32": ("uint_contents", np.uint32),
    "UINT64": ("uint64_contents", np.uint64),
    "FP32": ("fp32_contents", np.float32),
    "FP64": ("fp64_contents", np.float64),
}


def typed_bytes(tensor: Any, place: str) -> bytes:
    """The bytes of an InferInputTensor's typed contents; raises `RequestError` for a datatype that has none, values in
    another field, and numbers that the datatype does not hold."""
    if tensor.datatype == BYTES:
        _check_field(tensor, "bytes_contents", place)
        return b"".join(LENGTH.pack(len(element)) + element for element in tensor.contents.bytes_contents)
    if tensor.datatype not in CONTENTS:
        expected = f"raw_input_contents, or one of {', '.join(CONTENTS)}"
        raise RequestError(f"{place}.contents", f"{tensor.datatype!r:.50}", expected)
    field, kind = CONTENTS[tensor.datatype]
    _check_field(tensor, field, place)
    values: Array = np.array(getattr(tensor.contents, field), kind)
    exact = values.astype(NUMPY[tensor.datatype])
    if values.dtype.kind in "iu" and not np.array_equal(exact, values):
        odd = values[exact != values][0]
        raise RequestError(f"{place}.contents.{field}", f"{odd}", f"numbers that fit {tensor.datatype}")
    return exact.tobytes()


def _check_field(tensor: Any, field: str, place: str) -> None:
    others = [found.name for found, _ in tensor.contents.ListFields() if found.name != field]
    if others:
        raise RequestError(f"{place}.contents", others[0], f"{field} for {tensor.datatype}")


def add_contents(tensor: Any, values: Array) -> None:
    """Put the values into an InferOutputTensor's typed contents, in its datatype."""
    exact = values.astype(NUMPY[tensor.datatype], copy=False)
    getattr(tensor.contents, CONTENTS[tensor.datatype][0]).extend(exact.ravel().tolist())
