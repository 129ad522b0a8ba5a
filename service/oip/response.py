"""An answer -> bytes: JSON alone, or JSON followed by the tensors that are sent in binary."""

import functools
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic_core import to_json

from .datatypes import Array, from_bytes, item_size, to_bytes, to_values
from .outputs import Output
from .request import Wanted

REMEMBERED = 64  # JSON texts of binary answers: those of one model and as many examples are the same
Description = tuple[str, str, tuple[int, ...]]  # of a tensor: name, datatype, shape


@dataclass(frozen=True)
class Encoded:
    """`header_length`: how long the JSON is where binary tensors follow it."""

    body: bytes
    header_length: int | None


@dataclass(frozen=True)
class Head:
    """The answer without its tensors; `id` is the request's. Parameters cannot be lists in the protocol, so several
    `warnings` become one text."""

    model_name: str
    model_version: str
    id: str | None
    warnings: tuple[str, ...] = ()
    receipt: str | None = None

    @property
    def parameters(self) -> dict[str, str]:
        """Those that there are."""
        found = {"warnings": "\n".join(self.warnings)} if self.warnings else {}
        return found if self.receipt is None else found | {"receipt": self.receipt}

    def json(self) -> dict[str, Any]:
        """The JSON fields; `id` only where the request had one, parameters only where there are some."""
        head: dict[str, Any] = {"model_name": self.model_name, "model_version": self.model_version}
        named = head if self.id is None else head | {"id": self.id}
        return named | ({"parameters": self.parameters} if self.parameters else {})


def encode(head: Head, tensors: Iterable[tuple[Wanted, Array]], known: Mapping[str, Output]) -> Encoded:
    """Encode the answer, with each tensor as JSON or as bytes as the request asks."""
    chosen = [*tensors]
    described = [(wanted.name, known[wanted.name].datatype, values.shape) for wanted, values in chosen]
    data = [to_bytes(datatype, values) for (_, datatype, _), (_, values) in zip(described, chosen, strict=True)]
    in_binary = [wanted.binary for wanted, _ in chosen]
    if all(in_binary):
        repeats = head.id is None and head.receipt is None and not head.warnings
        text = (_remembered_json if repeats else _binary_json)(head, tuple(described))
        return Encoded(b"".join([text, *data]), len(text))
    outputs = [
        _binary_output(*one) if binary else _json_output(*one, part)
        for one, part, binary in zip(described, data, in_binary, strict=True)
    ]
    text = to_json({**head.json(), "outputs": outputs})
    parts = [part for part, binary in zip(data, in_binary, strict=True) if binary]
    return Encoded(b"".join([text, *parts]), len(text)) if parts else Encoded(text, None)


def _binary_json(head: Head, described: tuple[Description, ...]) -> bytes:
    return to_json({**head.json(), "outputs": [_binary_output(*one) for one in described]})


_remembered_json = functools.lru_cache(REMEMBERED)(_binary_json)


def _binary_output(name: str, datatype: str, shape: tuple[int, ...]) -> dict[str, Any]:
    size = {"binary_data_size": math.prod(shape) * item_size(datatype)}
    return {"name": name, "datatype": datatype, "shape": list(shape), "parameters": size}


def _json_output(name: str, datatype: str, shape: tuple[int, ...], data: bytes) -> dict[str, Any]:
    values = to_values(from_bytes(datatype, data, 0, math.prod(shape)))
    return {"name": name, "datatype": datatype, "shape": list(shape), "data": values}
