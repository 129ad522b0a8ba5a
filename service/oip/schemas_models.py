"""The protocol's metadata: pydantic models for OpenAPI."""

from typing import Any

from pydantic import BaseModel

Parameters = dict[str, bool | int | float | str]


class ServerMetadata(BaseModel):
    """This service, and the extensions of the protocol that it has."""

    name: str
    version: str
    extensions: list[str]


class TensorMetadata(BaseModel):
    """A size of -1 is open."""

    name: str
    datatype: str
    shape: list[int]


class ModelMetadata(BaseModel):
    """A model, its loaded versions and its tensors."""

    name: str
    versions: list[str]
    platform: str
    inputs: list[TensorMetadata]
    outputs: list[TensorMetadata]
    parameters: Parameters


def inlined(model: type[BaseModel]) -> dict[str, Any]:
    """The model's JSON schema in one piece, for places where nothing can be referred to."""
    schema = model.model_json_schema()
    definitions = schema.pop("$defs", {})

    def resolve(value: Any) -> Any:
        if isinstance(value, list):
            return [resolve(item) for item in value]
        if not isinstance(value, dict):
            return value
        if "$ref" in value:
            return resolve(definitions[value["$ref"].rpartition("/")[2]])
        return {key: resolve(item) for key, item in value.items()}

    resolved: dict[str, Any] = resolve(schema)
    return resolved
