"""An answer -> bytes: JSON alone, or JSON followed by the tensors that are sent in binary."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic_core import to_json

from service.oip.datatypes import Array, from_bytes, to_bytes, to_values
from service.oip.outputs import Output
from service.oip.request import Wanted


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
    degraded: bool
    warnings: tuple[str, ...] = ()

    def json(self) -> dict[str, Any]:
        """The JSON fields; `id` only where the request had one."""
        head: dict[str, Any] = {"model_name": self.model_name, "model_version": self.model_version}
        if self.id is not None:
            head["id"] = self.id
        parameters: dict[str, Any] = {"degraded": self.degraded}
        if self.warnings:
            parameters["warnings"] = "\n".join(self.warnings)
        return {**head, "parameters": parameters}


def encode(head: Head, tensors: Iterable[tuple[Wanted, Array]], known: Mapping[str, Output]) -> Encoded:
    """Encode the answer, with each tensor as JSON or as bytes as the request asks."""
    outputs, parts = [], []
    for wanted, values in tensors:
        datatype = known[wanted.name].datatype
        described: dict[str, Any] = {"name": wanted.name, "datatype": datatype, "shape": list(values.shape)}
        if wanted.binary:
            parts.append(to_bytes(datatype, values))
            described["parameters"] = {"binary_data_size": len(parts[-1])}
        else:
            described["data"] = to_values(from_bytes(datatype, to_bytes(datatype, values), 0, values.size))
        outputs.append(described)
    text = to_json({**head.json(), "outputs": outputs})
    return Encoded(b"".join([text, *parts]), len(text)) if parts else Encoded(text, None)
