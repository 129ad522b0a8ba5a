"""The protocol's metadata, statistics and repository commands: pydantic models, for parsing and for OpenAPI."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, TypeAdapter, WithJsonSchema

from probity.service.oip.schemas import Flag, RequestPart

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


class TensorConfig(BaseModel):
    """Sizes are without the batch."""

    name: str
    data_type: str
    dims: list[int]


class ModelConfig(BaseModel):
    """The part of Triton's model configuration that has a meaning here."""

    name: str
    platform: str
    backend: str
    max_batch_size: Annotated[int, Field(description="Most examples in one request.")]
    input: list[TensorConfig]
    output: list[TensorConfig]
    dynamic_batching: dict[str, int]


class Duration(BaseModel):
    """How often, and how long in all."""

    count: int
    ns: Annotated[int | None, Field(description="Nanoseconds; missing where they are not measured by model.")] = None


class InferenceStatistics(BaseModel):
    """`success` and `queue` count requests, `compute_infer` counts batches."""

    success: Duration
    queue: Duration
    compute_infer: Duration


class VersionStatistics(BaseModel):
    """Since the start: examples (`inference_count`), batches (`execution_count`), and where the time went."""

    name: str
    version: str
    inference_count: int
    execution_count: int
    inference_stats: InferenceStatistics


class ModelStatistics(BaseModel):
    """One entry a version."""

    model_stats: list[VersionStatistics]


class IndexRequest(RequestPart):
    """Which entries to list."""

    ready: Annotated[Flag | None, Field(description="Only models that are served.")] = None


class IndexEntry(BaseModel):
    """A bundle's folder."""

    name: str
    version: str
    state: Literal["READY", "UNAVAILABLE"]
    reason: str


class LoadRequest(RequestPart):
    """A model is loaded as its bundle is; `config` and `file:` parameters are refused."""

    parameters: Annotated[dict[str, Any], WithJsonSchema(TypeAdapter(Parameters).json_schema())] | None = None


class UnloadRequest(RequestPart):
    """Any object; nothing in it is used."""


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
