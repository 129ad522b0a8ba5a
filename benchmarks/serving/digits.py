"""Digits as the network takes them, and complete HTTP requests with them, as bytes."""

import base64
import functools
import io
import json
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image
from sklearn.datasets import load_digits

Array = npt.NDArray[Any]
PREDICT, INFER = "/predict", "/v2/models/digits/infer"
JSON, OCTETS = "application/json", "application/octet-stream"
LENGTH = "Inference-Header-Content-Length"


@functools.cache
def pixels() -> Array:
    """(n, 8, 8) uint8, the digits as 8-bit grey."""
    found: Array = np.rint(load_digits().images * (255 / 16)).astype(np.uint8)
    return found


def rows(count: int, first: int = 0) -> Array:
    """(count, 1, 8, 8) float32 as the network takes them, from the digit `first` on."""
    chosen = pixels()[np.arange(first, first + count) % len(pixels())]
    return np.ascontiguousarray(chosen[:, None].astype(np.float32) * np.float32(1 / 255))


@dataclass(frozen=True)
class Request:
    """One request and the number of examples in it."""

    name: str
    path: str
    body: bytes
    rows: int = 1
    headers: tuple[tuple[str, str], ...] = (("Content-Type", JSON),)

    def wire(self) -> bytes:
        """As it is sent over the connection, kept alive."""
        head = [f"POST {self.path} HTTP/1.1", "Host: 127.0.0.1", f"Content-Length: {len(self.body)}"]
        return "\r\n".join([*head, *(f"{name}: {value}" for name, value in self.headers), "\r\n"]).encode() + self.body


def binary(count: int, first: int = 0) -> Request:
    """Open Inference Protocol v2, tensors in binary in both directions, as tritonclient asks for them."""
    values = rows(count, first)
    size = {"binary_data_size": values.nbytes}
    tensor = {"name": "inputs", "shape": values.shape, "datatype": "FP32", "parameters": size}
    head = json.dumps({"inputs": [tensor], "parameters": {"binary_data_output": True}}).encode()
    fields = (("Content-Type", OCTETS), (LENGTH, str(len(head))))
    return Request(f"binary v2, {count} rows", INFER, head + values.tobytes(), count, fields)


def images(count: int, first: int = 0) -> Request:
    """The native API with base64 PNG images."""
    texts = [base64.b64encode(png(first + i)).decode() for i in range(count)]
    return Request(f"JSON images, {count}", PREDICT, json.dumps({"images": texts}).encode(), count)


def features(first: int = 0) -> Request:
    """The native API with one digit's features."""
    return Request("JSON features", PREDICT, json.dumps({"inputs": rows(1, first).tolist()}).encode())


def png(index: int) -> bytes:
    stream = io.BytesIO()
    Image.fromarray(pixels()[index % len(pixels())]).save(stream, "PNG")
    return stream.getvalue()
