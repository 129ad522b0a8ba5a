"""POST /v2/models/{name}[/versions/{version}]/infer: the Open Inference Protocol, JSON and binary."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from fastapi import Request, Response

from ..codec.arrays import Array, InputLimits
from ..codec.decoding import JSON, Decoded
from ..codec.encoded_images import ImageFiles, ImageTexts
from ..codec.json_limits import json_limits_for
from ..codec.plain_texts import PlainTexts
from ..data_plane import Asked, Outcome, R, Reader
from ..data_plane import infer as infer_by
from ..http.bodies import media_type
from ..http.problems import ProblemError
from ..http.request_id import given_id
from ..models.served import ServedModel
from ..oip import InferRequest, input_of, parse_request
from ..oip import encode as encode_tensors
from ..oip.outputs import Answer, Output, check_outputs, chosen, outputs_of
from ..oip.request import LENGTH_HEADER, Wanted, header_length
from ..oip.response import Head
from ..oip.schemas import INPUT, InferResponse, inlined
from ..oip.schemas import InferRequest as DocumentedRequest
from ..runtime import runtime_of
from .direct import HEADERS, call_of
from .v2_errors import ALL_ERRORS

OCTETS = "application/octet-stream"
BINARY_SPEED = 16  # bytes of a binary tensor that take as long as one byte of JSON
BINARY = {"schema": {"type": "string", "format": "binary"}}
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
        **ALL_ERRORS,
    },
    "openapi_extra": {
        "parameters": [LENGTH_PARAMETER, *HEADERS],
        "requestBody": {"required": True, "content": {JSON: {"schema": inlined(DocumentedRequest)}, OCTETS: BINARY}},
    },
}


async def infer(request: Request) -> Response:
    """The outputs asked for: probabilities or means, their variances, and whether each example is rejected."""
    return await infer_by(call_of(request), partial(bind, request))


def bind(request: Request, model: ServedModel) -> Reader[Response]:
    """Refuses a query, and a wrong id, media type or length, before the body is read."""
    if query := request.scope["query_string"].decode("latin-1"):  # a trial, or a rate, would be passed over
        detail = f"Found the query {query!r:.100}, expected none: the protocol's parameters are in the body."
        raise ProblemError(422, "field", detail, field="query", found=query[:100], expected="none")
    identity, kind = given_id(request.headers), media_type(request)
    if kind not in {"", JSON, OCTETS}:
        expected = f"{JSON}, {OCTETS} or none"
        detail = f"Found the media type {kind!r:.100}, expected {expected}."
        raise ProblemError(415, "media_type", detail, field="Content-Type", found=kind[:100], expected=expected)
    length, spec = header_length(request.headers.get(LENGTH_HEADER)), model.manifest.input
    limits = runtime_of(request).decoding.limits
    bounds, known = json_limits_for(spec, limits.rows(spec)), outputs_of(model.manifest)

    def effort(body: bytes) -> int:
        json = len(body) if length is None else min(length, len(body))
        return json + (len(body) - json) // BINARY_SPEED

    def read(body: bytes) -> Asked[Response]:
        asked = parse_request(body, length, bounds)
        return asked_by(asked, identity, model, limits, partial(_encode, asked, known))

    return Reader(JSON if length is None else OCTETS, read, effort)


def asked_by(
    request: InferRequest,
    identity: str | None,
    model: ServedModel,
    limits: InputLimits,
    encode: Callable[[Outcome], R],
) -> Asked[R]:
    """What the protocol's request asks for; raises `InputError`. identity: where it has none itself."""
    spec = model.manifest.input
    check_outputs(request, outputs_of(model.manifest))
    found = input_of(request.tensors, spec, limits)
    content = found if isinstance(found, ImageFiles | ImageTexts | PlainTexts) else Decoded(found, INPUT)
    return Asked(content, encode, request.id or identity, request.false_reject_rate, request.timeout_seconds)


def answer_of(
    request: InferRequest, known: Mapping[str, Output], outcome: Outcome
) -> tuple[Head, list[tuple[Wanted, Array]]]:
    """What the answer says, and its tensors."""
    tensors = chosen(request, known, Answer(outcome.answered.result, outcome.decision))
    model, warnings, receipt = outcome.model, tuple(outcome.warnings), outcome.receipt()
    return Head(model.name, model.version, request.id, warnings, receipt), tensors


def _encode(asked: InferRequest, known: Mapping[str, Output], outcome: Outcome) -> Response:
    encoded = encode_tensors(*answer_of(asked, known, outcome), known)
    headers = {} if encoded.header_length is None else {LENGTH_HEADER: str(encoded.header_length)}
    return Response(encoded.body, media_type=OCTETS if headers else JSON, headers=headers)
