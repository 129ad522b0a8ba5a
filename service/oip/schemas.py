"""The protocol's requests, answers and metadata: pydantic models that parse requests and make the OpenAPI document."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, Field, InstanceOf, Strict, model_validator
from pydantic_core import PydanticCustomError

INPUT = "inputs"  # the network's input, as its graph calls it
MAX_ID_LENGTH = 1024  # characters: the answer repeats the id
MAX_DIMENSIONS = 32  # NumPy 1 ends there
MAX_INT = 2**63 - 1
REFUSED_PARAMETER = "refused_parameter"

Parameters = dict[str, bool | int | float | str]
Text = Annotated[str, Strict()]
Flag = Annotated[bool, Strict()]
Count = Annotated[int, Strict(), Field(ge=0)]
Size = Annotated[int, Strict(), Field(ge=1, le=MAX_INT)]
Datatype = Literal[
    "BOOL",
    "UINT8",
    "UINT16",
    "UINT32",
    "UINT64",
    "INT8",
    "INT16",
    "INT32",
    "INT64",
    "FP16",
    "FP32",
    "FP64",
    "BF16",
    "BYTES",
]


class RequestPart(BaseModel):
    """An object in a request. Other fields are ignored, but those in `refused`, since they would change the answer."""

    refused: ClassVar[Mapping[str, str]] = {}

    @model_validator(mode="before")
    @classmethod
    def check_names(cls, values: Any) -> Any:
        """Read a missing field as null, so that its error says what was expected."""
        if not isinstance(values, dict):
            return values
        for name, expected in cls.refused.items():
            if name in values:
                raise PydanticCustomError(REFUSED_PARAMETER, "{expected}", {"name": name, "expected": expected})
        return dict.fromkeys(cls.model_fields) | values


class InputParameters(RequestPart):
    """Others are ignored."""

    refused = {"shared_memory_region": "the data in the request, no shared memory"}
    binary_data_size: Annotated[
        Count | None, Field(description="Bytes of this tensor after the JSON; then there is no `data`.")
    ] = None


class InputTensor(RequestPart):
    """Row-major values, flat or nested; or their bytes, after the JSON."""

    name: Annotated[str, Field(description="`inputs`; of a model with several inputs, the name of one.")]
    datatype: Annotated[Datatype, Field(description="Numbers of any kind; BYTES for image files.")]
    shape: Annotated[
        list[Size],
        Field(min_length=1, max_length=MAX_DIMENSIONS, fail_fast=True, description="(batch, *input shape)"),
    ]
    parameters: InputParameters | None = None
    data: InstanceOf[list[Any]] | None = None  # checked when they are converted, all at once


class OutputParameters(RequestPart):
    """Others are ignored, but `classification` and shared memory are refused."""

    refused = {
        "classification": "no such parameter; ask for the output and sort it",
        "shared_memory_region": "no such parameter; outputs are sent in the answer",
    }
    binary_data: Flag | None = None


class RequestedOutput(RequestPart):
    """An output to be sent."""

    name: Text
    parameters: OutputParameters | None = None


class InferParameters(RequestPart):
    """Others are ignored."""

    refused = {"trial": "no such parameter; ask /predict?trial=true"}
    timeout: Annotated[
        Annotated[Count, Field(le=MAX_INT)] | None,
        Field(description="How long the request may wait once it is read, in microseconds; 0: as the service has it."),
    ] = None
    false_reject_rate: Annotated[
        Annotated[float, Strict()] | None,  # the model refuses a rate that it has not, and what is none
        Field(
            description="Share of in-distribution inputs that may be rejected, where requests may choose.",
            json_schema_extra={"exclusiveMinimum": 0, "exclusiveMaximum": 1},
        ),
    ] = None
    binary_data_output: Annotated[Flag | None, Field(description="Whether outputs are sent in binary.")] = None


class InferRequest(RequestPart):
    """One tensor for each input; without `outputs`, the usual ones are sent."""

    id: Annotated[Text, Field(max_length=MAX_ID_LENGTH)] | None = None
    parameters: InferParameters | None = None
    inputs: Annotated[list[InputTensor], Field(fail_fast=True, json_schema_extra={"minItems": 1})]
    outputs: Annotated[list[RequestedOutput], Field(fail_fast=True)] | None = None


class OutputTensor(BaseModel):
    """Row-major values, flat; or, with `binary_data_size`, their bytes after the JSON."""

    name: str
    datatype: Literal["FP32", "FP64", "BOOL"]
    shape: list[Size]
    parameters: dict[str, int] | None = None
    data: list[Any] | None = None


class AnswerParameters(BaseModel):
    """What else there is to say of the answer."""

    warnings: Annotated[
        str | None, Field(description="Inputs far outside the values that the network was fitted on, line by line.")
    ] = None
    receipt: Annotated[
        str | None, Field(description="What `POST /feedback` takes with the labels, where the operator wants them.")
    ] = None


class InferResponse(BaseModel):
    """The outputs, in the order in which they were asked for."""

    model_name: str
    model_version: str
    id: Annotated[str, Field(max_length=MAX_ID_LENGTH)] | None = None
    parameters: AnswerParameters | None = None
    outputs: list[OutputTensor]


class ErrorResponse(BaseModel):
    """Why the request was refused."""

    error: str


class Live(BaseModel):
    """The process can do its work."""

    live: bool = True


class Ready(BaseModel):
    """The service is ready for requests."""

    ready: bool = True


class ModelReady(Ready):
    """The model is ready for requests."""

    name: str


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
