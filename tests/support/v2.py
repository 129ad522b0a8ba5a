"""Requests to /v2, and checks of their answers' form."""

import json
import struct
from collections.abc import Iterable, Sequence
from typing import Any

import httpx
import numpy as np
from pydantic import BaseModel

from demur.service.bundle import InputSpec
from demur.service.codec.arrays import Array, InputLimits
from demur.service.codec.encoded_images import ImageFiles, ImageTexts
from demur.service.codec.plain_texts import PlainTexts
from demur.service.oip import input_of
from demur.service.oip.schemas import ErrorResponse, InferResponse
from demur.service.oip.tensor import Tensor
from tests.support.client import Client

Json = dict[str, Any]
MODEL = "/v2/models/synthetic"
INFER = f"{MODEL}/infer"
LENGTH = "Inference-Header-Content-Length"
ROWS = [[0.5, -1.0, 2.0, 0.25], [1.0, 2.0, 3.0, 4.0]]
VALUES = np.array(ROWS, np.float32)
GOOD: Json = {"inputs": [{"name": "inputs", "shape": [2, 4], "datatype": "FP32", "data": ROWS}]}


def post(client: Client, body: Any, path: str = INFER, **headers: str) -> httpx.Response:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return client.request("POST", path, content=content, headers=named)


def binary(values: Array = VALUES, **more: Any) -> tuple[bytes, dict[str, str]]:
    """A body whose tensor is binary, and its header."""
    size = {"binary_data_size": values.nbytes}
    tensor = {"name": "inputs", "shape": list(values.shape), "datatype": "FP32", "parameters": size}
    head = json.dumps({"inputs": [tensor], **more}).encode()
    return head + values.tobytes(), {LENGTH: str(len(head))}


def refused(response: httpx.Response, status: int, *fragments: str) -> str:
    """The text of a refusal, checked for its form."""
    assert response.status_code == status, response.text[:500]
    assert response.headers["content-type"] == "application/json"
    error = ErrorResponse.model_validate(response.json(), extra="forbid").error
    assert "Traceback" not in error
    assert len(error) < 1500
    for fragment in fragments:
        assert fragment in error
    return error


def checked(response: httpx.Response, model: type[BaseModel]) -> Json:
    """The answer, checked against the schema without extra fields."""
    assert response.status_code == 200, response.text
    data: Json = response.json()
    model.model_validate(data, extra="forbid")
    return data


def outputs(response: httpx.Response) -> dict[str, Json]:
    return {output["name"]: output for output in checked(response, InferResponse)["outputs"]}


def join_elements(elements: Iterable[bytes]) -> bytes:
    """A binary tensor of BYTES: each element after its little-endian u32 length."""
    return b"".join(part for element in elements for part in (struct.pack("<I", len(element)), element))


def array_of(tensors: Sequence[Tensor], spec: InputSpec, limits: InputLimits) -> Array:
    """The tensors as the network takes them; images are decoded here."""
    found = input_of(tensors, spec, limits)
    assert not isinstance(found, PlainTexts)
    return found.array(spec, limits) if isinstance(found, ImageFiles | ImageTexts) else found
