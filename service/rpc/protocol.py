"""The messages of `inference.GRPCInferenceService`, in a descriptor pool of their own.

KServe's and Triton's clients register them in protobuf's common pool, which refuses a second file with the same names:
a process that imports two of them fails. So what protoc made of `open_inference.proto` is read here.
"""

from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

PACKAGE = "inference"
SERVICE = f"{PACKAGE}.GRPCInferenceService"
METHODS = ("ServerLive", "ServerReady", "ModelReady", "ServerMetadata", "ModelMetadata", "ModelInfer")
FILE = Path(__file__).with_name("open_inference.binpb")


class Protocol:
    """The classes of the messages, by name, and the pool that describes them and the service."""

    def __init__(self) -> None:
        self.pool = descriptor_pool.DescriptorPool()
        for file in descriptor_pb2.FileDescriptorSet.FromString(FILE.read_bytes()).file:
            self.pool.Add(file)

    def __getitem__(self, name: str) -> Any:
        """One inside another is called by both names."""
        return message_factory.GetMessageClass(self.pool.FindMessageTypeByName(f"{PACKAGE}.{name}"))
