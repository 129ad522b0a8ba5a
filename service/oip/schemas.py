"""The shapes of the protocol's requests and answers, as OpenAPI documents them."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from service.oip.request import MAX_ID_LENGTH

Size = Annotated[int, Field(ge=1)]
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


class InputParameters(BaseModel):
    """Others are ignored."""

    binary_data_size: Annotated[
        int | None, Field(ge=0, description="Bytes of this tensor after the JSON; then there is no `data`.")
    ] = None


class InputTensor(BaseModel):
    """Row-major values, flat or nested; or their bytes, after the JSON."""

    name: Literal["inputs"]
    datatype: Annotated[Datatype, Field(description="Numbers of any kind; BYTES for image files.")]
    shape: Annotated[list[Size], Field(min_length=1, max_length=32, description="(batch, *input shape)")]
    parameters: InputParameters | None = None
    data: list[Any] | None = None


class OutputParameters(BaseModel):
    """Others are ignored, but `classification` and shared memory are refused."""

    binary_data: bool | None = None


class RequestedOutput(BaseModel):
    """An output to be sent."""

    name: str
    parameters: OutputParameters | None = None


class InferParameters(BaseModel):
    """Others are ignored."""

    timeout: Annotated[
        int | None, Field(ge=0, description="How long the request may wait, in microseconds; 0: as the service has it.")
    ] = None
    binary_data_output: Annotated[bool | None, Field(description="Whether outputs are sent in binary.")] = None


class InferRequest(BaseModel):
    """One input tensor; without `outputs`, all are sent."""

    id: Annotated[str, Field(max_length=MAX_ID_LENGTH)] | None = None
    parameters: InferParameters | None = None
    inputs: Annotated[list[InputTensor], Field(min_length=1, max_length=1)]
    outputs: list[RequestedOutput] | None = None


class OutputTensor(BaseModel):
    """Row-major values, flat; or, with `binary_data_size`, their bytes after the JSON."""

    name: str
    datatype: Literal["FP32", "BOOL"]
    shape: list[Size]
    parameters: dict[str, int] | None = None
    data: list[Any] | None = None


class AnswerParameters(BaseModel):
    """How the answer was made."""

    degraded: Annotated[
        bool, Field(description="Whether the plain network answered alone, for lack of time: no uncertainty is known.")
    ]
    warnings: Annotated[
        str | None, Field(description="Inputs far outside the values that the network was fitted on, line by line.")
    ] = None


class InferResponse(BaseModel):
    """The outputs, in the order in which they were asked for."""

    model_name: str
    model_version: str
    id: Annotated[str, Field(max_length=MAX_ID_LENGTH)] | None = None
    parameters: AnswerParameters
    outputs: list[OutputTensor]


class ErrorResponse(BaseModel):
    """Why the request was refused."""

    error: str
