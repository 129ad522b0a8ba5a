"""Arrays, lists and image files -> a body and its media type. NumPy is used only where the caller imported it."""

import io
import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Protocol, TypeAlias

import httpx

JSON, NPY = "application/json", "application/x-npy"
FIELD = "files"


class Array(Protocol):
    """Anything with `tolist`, such as the arrays of NumPy, torch and JAX."""

    def tolist(self) -> Any: ...


class Frame(Protocol):
    """A data frame, such as those of pandas and polars."""

    @property
    def columns(self) -> Any: ...

    def __getitem__(self, name: str) -> Any: ...


Inputs: TypeAlias = Sequence[Any] | Mapping[str, Any] | Array | Frame | float
File: TypeAlias = str | os.PathLike[str] | bytes | bytearray | memoryview | IO[bytes]


def encode_inputs(inputs: Inputs) -> tuple[bytes, str]:
    """The body and its media type; `TypeError` or `ValueError` for anything but an array, a frame or lists of numbers.

    The rows of a frame become objects, so that the service finds the columns by name. Numbers that are not finite are
    sent: the service names them in its error. Texts, in a list or a column, are sent as such.
    """
    if (texts := _texts(inputs)) is not None:
        return json.dumps({"texts": texts}).encode(), JSON
    # A caller with a NumPy array has imported NumPy.
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(inputs, numpy.ndarray):
        if numpy.ma.is_masked(inputs):  # what it hides would be sent as numbers
            raise ValueError("inputs: found masked entries, expected numbers; fill what is missing")
        stream = io.BytesIO()
        numpy.save(stream, inputs, allow_pickle=False)
        return stream.getvalue(), NPY
    if hasattr(inputs, "columns") and hasattr(inputs, "to_numpy"):
        # The service says which value is no number, if the model has a feature of that name.
        return json.dumps({"inputs": _rows(inputs)}, default=str).encode(), JSON
    return json.dumps({"inputs": inputs}, default=_listed).encode(), JSON


def _texts(inputs: Any) -> list[Any] | None:
    """The entries of a list, an array or a column that begins with a text, or one text; None for anything else."""
    if isinstance(inputs, str):
        return [inputs]
    if hasattr(inputs, "columns") or isinstance(inputs, Mapping | bytes):
        return None
    listed = getattr(inputs, "tolist", None) or getattr(inputs, "to_list", None)
    if listed is not None and getattr(getattr(inputs, "dtype", None), "kind", "O") not in "OUT":
        return None
    entries = listed() if listed is not None else inputs
    begins = isinstance(entries, Sequence) and len(entries) > 0 and isinstance(entries[0], str)
    return list(entries) if begins else None


def _rows(frame: Any) -> list[Any]:
    """The rows of a frame as objects; as lists where its columns have no names."""
    names = list(frame.columns)
    if names == list(range(len(names))):
        rows: list[Any] = frame.to_numpy().tolist()
        return rows
    if not all(isinstance(name, str) for name in names):
        raise ValueError(f"inputs: found columns called {names!s:.150}, expected text, or 0, 1, ... in order")
    if len(set(names)) < len(names):
        raise ValueError("inputs: found several columns of one name, expected a name for each")
    cells = (_cells(frame[name]) for name in names)
    return [dict(zip(names, row, strict=True)) for row in zip(*cells, strict=True)]


def _cells(column: Any) -> list[Any]:
    """With 1 and 0 for true and false, which a network takes as numbers."""
    return [int(cell) if isinstance(cell, bool) else cell for cell in column.to_list()]


def _listed(value: Any) -> Any:
    if hasattr(value, "to_frame") or hasattr(value, "columns"):
        raise TypeError(
            f"inputs: found a {type(value).__name__} of named values, expected a data frame, such as frame.iloc[[0]], "
            "or an array"
        )
    tolist = getattr(value, "tolist", None)
    if tolist is None:
        raise TypeError(f"inputs: found {type(value).__name__}, expected an array, or lists of numbers")
    return tolist()


def encode_files(files: File | Iterable[File]) -> tuple[bytes, str]:
    """A form with the files, and its media type; the files' own names are not sent.

    Raises `ValueError` without files, `TypeError` for anything but files, and `OSError` where one cannot be read.
    """
    parts = [(FIELD, (f"image-{i}", _bytes_of(file), "application/octet-stream")) for i, file in enumerate(_all(files))]
    if not parts:
        raise ValueError("files: found none, expected at least one")
    request = httpx.Request("POST", "http://unused", files=parts)
    return request.read(), request.headers["content-type"]


def _all(files: Any) -> Iterable[Any]:
    """A single file as a list: iterating over a path or an open file would give characters or lines."""
    one = isinstance(files, str | os.PathLike | bytes | bytearray | memoryview) or hasattr(files, "read")
    return [files] if one else files


def _bytes_of(file: Any) -> bytes:
    if isinstance(file, str | os.PathLike):
        return Path(file).read_bytes()
    data = file.read() if hasattr(file, "read") else file
    if not isinstance(data, bytes | bytearray | memoryview):
        raise TypeError(f"files: found {type(data).__name__}, expected a path, bytes, or a file opened in binary mode")
    return bytes(data)
