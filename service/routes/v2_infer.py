"""POST /v2/models/{name}[/versions/{version}]/infer: the Open Inference Protocol, JSON and binary."""

import asyncio
import math
from collections.abc import Callable
from typing import Any, TypeVar

import anyio
from fastapi import Request, Response

from service.admission import Lease
from service.batching import Answered
from service.bodies import media_type, read_body
from service.decoding import ENTRIES_FACTOR, ENTRIES_SLACK, JSON
from service.oip import Encoded, InferRequest, OutputUnavailable, array_of, encode, parse_request
from service.oip.compression import coding, compressed
from service.oip.datatypes import Array
from service.oip.outputs import check_outputs, chosen, outputs_of
from service.oip.request import LENGTH_HEADER, header_length
from service.oip.response import Head
from service.oip.schemas import InferRequest as DocumentedRequest
from service.oip.schemas import InferResponse
from service.oip.schemas_models import inlined
from service.problems import ProblemError
from service.routes.v2_documented import ERRORS
from service.routes.waiting import while_connected
from service.runtime import Runtime, runtime_of
from service.served import AnyPrediction, ServedModel

OCTETS = "application/octet-stream"
# Work shorter than a change of threads is done where it is: so much JSON, so many bytes of tensors, so many numbers.
INLINE_JSON, INLINE_BYTES, INLINE_NUMBERS = 16 * 2**10, 256 * 2**10, 4096
BINARY = {"schema": {"type": "string", "format": "binary"}}
T = TypeVar("T")
LENGTH_PARAMETER = {
    "name": LENGTH_HEADER,
    "in": "header",
    "required": False,
    "description": "Length of the JSON in bytes, before compression, where binary tensors follow it.",
    "schema": {"type": "integer", "minimum": 0},
}
DOCUMENTED: dict[str, Any] = {
    "responses": {
        200: {
            "model": InferResponse,
            "description": "The outputs; with binary ones, JSON followed by their bytes.",
            "content": {OCTETS: BINARY},
            "headers": {LENGTH_HEADER: {key: LENGTH_PARAMETER[key] for key in ("description", "schema")}},
        },
        **ERRORS,
    },
    "openapi_extra": {
        "parameters": [LENGTH_PARAMETER],
        "requestBody": {"required": True, "content": {JSON: {"schema": inlined(DocumentedRequest)}, OCTETS: BINARY}},
    },
}


async def infer(request: Request) -> Response:
    """The outputs asked for: probabilities or means, their variances, and whether each example is rejected."""
    runtime = runtime_of(request)
    began, deadline = asyncio.get_running_loop().time(), runtime.deadline(request)
    name, version = request.path_params["name"], request.path_params.get("version")
    with runtime.store.find(name, version).in_use() as model, runtime.bodies.lease() as lease:
        decode = await _decoder(request, runtime, model, lease)
        asked, array = await _run(decode, decode.quick, runtime.decoders)
        deadline = min(deadline, began + (asked.timeout_seconds or math.inf))
        answered = await while_connected(request, model.predict(array, deadline))
        answer = _Answer(asked, model, answered, coding(request.headers.get("accept-encoding")))
        return answer.response(await _run(answer.encoded, answered.result.mean.size <= INLINE_NUMBERS))


async def _run(work: Callable[[], T], quick: bool, limiter: anyio.CapacityLimiter | None = None) -> T:
    return work() if quick else await anyio.to_thread.run_sync(work, limiter=limiter)


class _Decode:
    """From the body to what is asked for and to the model's input, and whether that is quick."""

    def __init__(self, body: bytes, length: int | None, model: ServedModel, runtime: Runtime) -> None:
        self.body, self.length, self.manifest, self.limits = body, length, model.manifest, runtime.limits
        json = len(body) if length is None else length
        self.quick = json <= INLINE_JSON and len(body) <= INLINE_BYTES and not self._may_hold_images(body[:json])

    def __call__(self) -> tuple[InferRequest, Array]:
        spec = self.manifest.input
        most = ENTRIES_FACTOR * math.prod(spec.shape) * self.limits.max_rows + ENTRIES_SLACK
        asked = parse_request(self.body, self.length, most)
        check_outputs(asked, outputs_of(self.manifest))
        return asked, array_of(asked.tensor, spec, self.limits)

    def _may_hold_images(self, json: bytes) -> bool:
        """Decoding an image takes long. Behind a backslash, the datatype may be spelled in many ways."""
        return self.manifest.input.image is not None and (b"BYTES" in json or b"\\" in json)


async def _decoder(request: Request, runtime: Runtime, model: ServedModel, lease: Lease) -> _Decode:
    kind = media_type(request)
    if kind not in {"", JSON, OCTETS}:
        expected = f"{JSON}, {OCTETS} or none"
        detail = f"Found the media type {kind!r:.100}, expected {expected}."
        raise ProblemError(415, "media_type", detail, field="Content-Type", found=kind[:100], expected=expected)
    length = header_length(request.headers.get(LENGTH_HEADER))
    body = await read_body(request, runtime.settings.max_body_bytes, runtime.settings.body_timeout_seconds, lease)
    return _Decode(body, length, model, runtime)


class _Answer:
    """The answer that is sent, compressed where the client names one way to do so."""

    def __init__(
        self, asked: InferRequest, model: ServedModel, answered: Answered[AnyPrediction], coding: str | None
    ) -> None:
        self.asked, self.answered, self.coding, self.known = asked, answered, coding, outputs_of(model.manifest)
        self.head = Head(model.name, model.version, asked.id, answered.late)

    def encoded(self) -> Encoded:
        try:
            tensors = chosen(self.asked, self.known, self.answered.result)
        except OutputUnavailable as error:
            raise ProblemError(503, "degraded", f"{error}.", headers={"Retry-After": "1"}) from None
        plain = encode(self.head, tensors, self.known)
        return Encoded(compressed(plain.body, self.coding), plain.header_length)

    def response(self, encoded: Encoded) -> Response:
        headers = {} if encoded.header_length is None else {LENGTH_HEADER: str(encoded.header_length)}
        if self.coding is not None:
            headers |= {"Content-Encoding": self.coding, "Vary": "Accept-Encoding"}
        return Response(encoded.body, media_type=OCTETS if LENGTH_HEADER in headers else JSON, headers=headers)
