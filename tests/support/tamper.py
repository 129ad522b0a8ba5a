"""Break a bundle on purpose: change its files, with or without matching hashes in the manifest."""

import copy
import hashlib
import json
import shutil
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import safetensors.numpy

from demur.service.bundle import CALIBRATION, MANIFEST, MODEL, POSTERIOR, SEAL, BundleError, seal
from demur.service.inference.predictor import Predictor

FILES = (MANIFEST, MODEL, POSTERIOR, CALIBRATION)
Tensors = dict[str, npt.NDArray[Any]]
Place = tuple[str | int, ...]
Change = Callable[[Tensors], None]


def copy_bundle(source: Path, to: Path) -> Path:
    shutil.copytree(source, to)
    return to


def contents(folder: Path) -> dict[str, bytes]:
    """Every file of a folder, by name."""
    return {file.name: file.read_bytes() for file in sorted(folder.iterdir())}


def load_json(folder: Path) -> dict[str, Any]:
    data: dict[str, Any] = json.loads((folder / MANIFEST).read_text())
    return data


def save_json(folder: Path, data: Any) -> None:
    """Write a manifest with a valid seal: an attacker who can change a file can change its hash."""
    if isinstance(data, dict):
        data = {**data, SEAL: seal(data)}
    (folder / MANIFEST).write_text(json.dumps(data))


def put(folder: Path, name: str, data: bytes) -> None:
    """Write one file and enter its true size and hash in the manifest."""
    (folder / name).write_bytes(data)
    manifest = load_json(folder)
    manifest["files"][name] = {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)}
    save_json(folder, manifest)


def tensors(folder: Path, name: str) -> Tensors:
    """Writable copies of the tensors of one file."""
    loaded = safetensors.numpy.load((folder / name).read_bytes())
    return {key: np.array(value) for key, value in loaded.items()}


def setter(name: str, place: Any, value: Any) -> Change:
    """Set values of the tensor `name`."""

    def change(loaded: Tensors) -> None:
        loaded[name][place] = value

    return change


def swap(name: str, make: Callable[[npt.NDArray[Any]], npt.NDArray[Any]]) -> Change:
    """Put what `make` returns in the place of the tensor `name`."""

    def change(loaded: Tensors) -> None:
        loaded[name] = np.ascontiguousarray(make(loaded[name]))

    return change


def put_tensors(folder: Path, name: str, values: Tensors) -> None:
    put(folder, name, safetensors.numpy.save(values))


def raw_safetensors(header: Any, data: bytes = b"", length: int | None = None) -> bytes:
    """A safetensors file with this header; `length` is what its first eight bytes claim."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def places(value: Any, prefix: Place = ()) -> Iterator[Place]:
    """The place of every value in a JSON document, the document itself last."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from places(item, (*prefix, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from places(item, (*prefix, index))
    yield prefix


def replaced(document: Any, place: Place, value: Any) -> Any:
    """A copy of a JSON document with another value at `place`."""
    if not place:
        return value
    document = copy.deepcopy(document)
    parent = document
    for key in place[:-1]:
        parent = parent[key]
    parent[place[-1]] = value
    return document


def refusal(folder: Path, file: str, *fragments: str) -> BundleError:
    """Assert that loading is refused with a message that names the file, a remedy and the fragments."""
    with pytest.raises(BundleError) as caught:
        Predictor.load(folder)
    message = str(caught.value)
    assert message.startswith(f"{folder / file}: "), message
    assert caught.value.file == str(folder / file)
    for fragment in fragments:
        assert fragment in message, message
    assert "(remedy: " in message
    assert len(message) < 2000
    return caught.value
