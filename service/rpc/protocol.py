"""The messages of `inference.GRPCInferenceService`, in a descriptor pool of their own.

KServe and Triton publish the protocol (grpc_predict_v2.proto, package `inference`), and their clients register it in
protobuf's common pool, which refuses a second file with the same names: a process that imports two of them fails.
Names, numbers and types are what goes over the wire, and stand here.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

PACKAGE = "inference"
SERVICE = f"{PACKAGE}.GRPCInferenceService"
METHODS = ("ServerLive", "ServerReady", "ModelReady", "ServerMetadata", "ModelMetadata", "ModelInfer")

Field = tuple[str, str]
PARAMETERS = ("parameters", "map")
TENSOR: Mapping[int, Field] = {1: ("name", "string"), 2: ("datatype", "string"), 3: ("shape", "int64*")}
WITH_CONTENTS: Mapping[int, Field] = {**TENSOR, 4: PARAMETERS, 5: ("contents", "InferTensorContents")}
MODEL: Mapping[int, Field] = {1: ("name", "string"), 2: ("version", "string")}
ANSWER: Mapping[int, Field] = {1: ("model_name", "string"), 2: ("model_version", "string"), 3: ("id", "string")}
# Number -> name and type of each field: a type of protobuf, or a message; "*": repeated, "map": from strings to
# InferParameter. A message inside another is called by both names.
MESSAGES: Mapping[str, Mapping[int, Field]] = {
    "ServerLiveRequest": {},
    "ServerLiveResponse": {1: ("live", "bool")},
    "ServerReadyRequest": {},
    "ServerReadyResponse": {1: ("ready", "bool")},
    "ModelReadyRequest": MODEL,
    "ModelReadyResponse": {1: ("ready", "bool")},
    "ServerMetadataRequest": {},
    "ServerMetadataResponse": {1: ("name", "string"), 2: ("version", "string"), 3: ("extensions", "string*")},
    "ModelMetadataRequest": MODEL,
    "ModelMetadataResponse": {
        1: ("name", "string"),
        2: ("versions", "string*"),
        3: ("platform", "string"),
        4: ("inputs", "ModelMetadataResponse.TensorMetadata*"),
        5: ("outputs", "ModelMetadataResponse.TensorMetadata*"),
    },
    "ModelMetadataResponse.TensorMetadata": TENSOR,
    "ModelInferRequest": {
        **ANSWER,
        4: PARAMETERS,
        5: ("inputs", "ModelInferRequest.InferInputTensor*"),
        6: ("outputs", "ModelInferRequest.InferRequestedOutputTensor*"),
        7: ("raw_input_contents", "bytes*"),
    },
    "ModelInferRequest.InferInputTensor": WITH_CONTENTS,
    "ModelInferRequest.InferRequestedOutputTensor": {1: ("name", "string"), 2: PARAMETERS},
    "ModelInferResponse": {
        **ANSWER,
        4: PARAMETERS,
        5: ("outputs", "ModelInferResponse.InferOutputTensor*"),
        6: ("raw_output_contents", "bytes*"),
    },
    "ModelInferResponse.InferOutputTensor": WITH_CONTENTS,
    "InferParameter": {
        1: ("bool_param", "bool"),
        2: ("int64_param", "int64"),
        3: ("string_param", "string"),
        4: ("double_param", "double"),  # Triton's
        5: ("uint64_param", "uint64"),
    },
    "InferTensorContents": {
        1: ("bool_contents", "bool*"),
        2: ("int_contents", "int32*"),
        3: ("int64_contents", "int64*"),
        4: ("uint_contents", "uint32*"),
        5: ("uint64_contents", "uint64*"),
        6: ("fp32_contents", "float*"),
        7: ("fp64_contents", "double*"),
        8: ("bytes_contents", "bytes*"),
    },
}
CHOICES = {"InferParameter": "parameter_choice"}  # messages of which one field is set


class Protocol:
    """The classes of the messages, by name, and the pool that describes them and the service."""

    def __init__(self, beside: Iterable[Any] = ()) -> None:
        """beside: descriptors of files that the pool describes too."""
        self.pool = descriptor_pool.DescriptorPool()
        for file in (_described(), *beside):
            self.pool.Add(file)
        self._classes = {
            name: message_factory.GetMessageClass(self.pool.FindMessageTypeByName(f"{PACKAGE}.{name}"))
            for name in MESSAGES
        }

    def __getitem__(self, name: str) -> Any:
        return self._classes[name]


def _described() -> Any:
    """The file."""
    file = descriptor_pb2.FileDescriptorProto(name="open_inference.proto", package=PACKAGE, syntax="proto3")
    made: dict[str, Any] = {}
    for name, fields in MESSAGES.items():
        outer, _, own = name.rpartition(".")
        message = made[outer].nested_type.add() if outer else file.message_type.add()
        message.name, made[name] = own, message
        if name in CHOICES:
            message.oneof_decl.add(name=CHOICES[name])
        for number, (label, kind) in fields.items():
            _add_field(message, name, number, label, kind)
    service = file.service.add(name=SERVICE.rpartition(".")[2])
    for method in METHODS:
        service.method.add(
            name=method, input_type=f".{PACKAGE}.{method}Request", output_type=f".{PACKAGE}.{method}Response"
        )
    return file


def _add_field(message: Any, owner: str, number: int, name: str, kind: str) -> None:
    field = message.field.add(name=name, number=number)
    repeated = kind.endswith("*") or kind == "map"
    field.label = field.LABEL_REPEATED if repeated else field.LABEL_OPTIONAL
    if kind == "map":
        entry = message.nested_type.add(name="ParametersEntry")
        entry.options.map_entry = True
        _add_field(entry, f"{owner}.{entry.name}", 1, "key", "string")
        _add_field(entry, f"{owner}.{entry.name}", 2, "value", "InferParameter")
        kind = f"{owner}.{entry.name}"
    plain = kind.rstrip("*")
    scalar = getattr(field, f"TYPE_{plain.upper()}", None)
    field.type = field.TYPE_MESSAGE if scalar is None else scalar
    if scalar is None:
        field.type_name = f".{PACKAGE}.{plain}"
    if owner in CHOICES:
        field.oneof_index = 0
