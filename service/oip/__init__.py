"""Open Inference Protocol v2 (KServe, Triton): requests and answers as bytes, JSON and binary, without HTTP.

    bytes -> parse_request -> InferRequest -> input_of -> array (B, *input_shape) -> [model] -> encode -> bytes

A request that is wrong raises `NotJson` or `InputError`, of which `RequestError` is one kind.
"""

from .errors import RequestError
from .inputs import Undecoded, input_of
from .request import InferRequest, parse_request
from .response import Encoded, encode

__all__ = [
    "Encoded",
    "InferRequest",
    "RequestError",
    "Undecoded",
    "encode",
    "input_of",
    "parse_request",
]
