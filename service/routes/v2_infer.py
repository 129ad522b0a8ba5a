"""POST /v2/models/{name}[/versions/{version}]/infer: the Open Inference Protocol, JSON and binary."""

import asyncio
import functools
import math
from typing import Any

from fastapi import Request, Response

from ..batching import Answered
from ..codec.answers import warnings_of
from ..codec.decoding import JSON
from ..codec.encoded_images import ImageFiles, ImageTexts
from ..codec.json_limits import json_limits_for
from ..codec.plain_texts import PlainTexts
from ..http.admission import Lease
from ..http.bodies import media_type, reserve, reserve_response
from ..http.disconnect import CancelOnDisconnect
from ..http.problems import ProblemError
from ..http.request_id import given_id
from ..http.route_key import PARAMETER as ROUTE_PARAMETER
from ..http.route_key import ticket_of
from ..http.steps import steps_of
from ..inference.decision import Decision
from ..models.served import AnyPrediction, ServedModel
from ..oip import Encoded, InferRequest, OutputUnavailable, Undecoded, encode, input_of, parse_request
from ..oip.datatypes import Array
from ..oip.outputs import Answer, check_outputs, chosen, outputs_of
from ..oip.request import LENGTH_HEADER, header_length
from ..oip.response import Head
from ..oip.schemas import INPUT, InferResponse, inlined
from ..oip.schemas import InferRequest as DocumentedRequest
from ..runtime import RequestDeadline, Runtime, runtime_of
from .decode import decode_images, decode_numbers, decode_texts, read
from .direct import lease_of
from .v2_errors import ALL_ERRORS

OCTETS = "application/octet-stream"
INLINE_NUMBERS = 4096  # serialising so many takes no longer than handing them to a thread
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
        "parameters": [LENGTH_PARAMETER, ROUTE_PARAMETER],
        "requestBody": {"required": True, "content": {JSON: {"schema": inlined(DocumentedRequest)}, OCTETS: BINARY}},
    },
}


async def infer(request: Request) -> Response:
    """The outputs asked for: probabilities or means, their variances, and whether each example is rejected."""
    runtime = runtime_of(request)
    began, deadline = asyncio.get_running_loop().time(), runtime.deadline(request)
    name, version = request.path_params["name"], request.path_params.get("version")
    lease, own_id = lease_of(request), given_id(request)
    if query := request.scope["query_string"].decode("latin-1"):  # a trial, or a rate, would be passed over
        detail = f"Found the query {query!r:.100}, expected none: the protocol's parameters are in the body."
        raise ProblemError(422, "field", detail, field="query", found=query[:100], expected="none")
    with runtime.store.find(name, version, functools.partial(ticket_of, request)).in_use() as model:
        with deadline.attributed():
            infer_request, array, warned = await _read_and_decode(request, runtime, model, lease, deadline)
        decision = model.decision(infer_request.false_reject_rate)
        deadline = deadline.sooner(began + (infer_request.timeout_seconds or math.inf))
        with deadline.attributed():
            async with CancelOnDisconnect(request):
                answered = await model.predict(array, deadline.at, decision)
        steps_of(request).answered(answered)
        runtime.record(request, model, decision, infer_request.id or own_id, answered.result, array)
        warnings = [*warned, *warnings_of(answered.result, model.predictor, array, INPUT)]
        encoding = functools.partial(_encoded, infer_request, model, runtime, decision, answered, warnings)
        few = answered.result.mean.size <= INLINE_NUMBERS
        encoded = encoding() if few else await runtime.in_thread(encoding)
        reserve_response(lease, len(encoded.body))
        return _rendered(encoded)


async def _read_and_decode(
    request: Request, runtime: Runtime, model: ServedModel, lease: Lease, deadline: RequestDeadline
) -> tuple[InferRequest, Array, list[str]]:
    """The request, the model's input, (B, ...) as the model takes it, and warnings from decoding it."""
    kind = media_type(request)
    if kind not in {"", JSON, OCTETS}:
        expected = f"{JSON}, {OCTETS} or none"
        detail = f"Found the media type {kind!r:.100}, expected {expected}."
        raise ProblemError(415, "media_type", detail, field="Content-Type", found=kind[:100], expected=expected)
    length, body = header_length(request.headers.get(LENGTH_HEADER)), await read(request, runtime, deadline, lease)
    model.check_room()  # decode nothing for a request that the queue would reject
    steps = steps_of(request)
    steps.received(model)
    spec, known = model.manifest.input, outputs_of(model.manifest)
    bounds = json_limits_for(spec, runtime.limits.rows(spec))

    def decode() -> tuple[InferRequest, Array | Undecoded]:
        infer_request = parse_request(body, length, bounds)
        check_outputs(infer_request, known)
        return infer_request, input_of(infer_request.tensors, spec, runtime.limits)

    infer_request, inputs = await decode_numbers(request, runtime, deadline.at, _effort(body, length), decode)
    warnings: list[str] = []
    if isinstance(inputs, ImageFiles | ImageTexts):
        inputs = await decode_images(request, runtime, deadline.at, inputs, spec)
    elif isinstance(inputs, PlainTexts):
        inputs, warnings = await decode_texts(request, runtime, deadline.at, inputs, model.predictor)
    steps.decoded(len(inputs))
    reserve(lease, inputs.nbytes)
    return infer_request, inputs, warnings


def _effort(body: bytes, length: int | None) -> int:
    """The body's size in bytes of JSON that take as long to decode; binary numbers are only checked."""
    json = len(body) if length is None else min(length, len(body))
    return json + (len(body) - json) // BINARY_SPEED


def _encoded(
    infer_request: InferRequest,
    model: ServedModel,
    runtime: Runtime,
    decision: Decision,
    answered: Answered[AnyPrediction],
    warnings: list[str],
) -> Encoded:
    known, answer = outputs_of(model.manifest), Answer(answered.result, decision)
    try:
        tensors = chosen(infer_request, known, answer)
    except OutputUnavailable as error:
        raise ProblemError(503, "degraded", f"{error}.", headers={"Retry-After": "1"}) from None
    receipt = runtime.receipt(model, decision, answered.result)
    head = Head(model.name, model.version, infer_request.id, answered.degraded, tuple(warnings), receipt)
    return encode(head, tensors, known)


def _rendered(encoded: Encoded) -> Response:
    headers = {} if encoded.header_length is None else {LENGTH_HEADER: str(encoded.header_length)}
    return Response(encoded.body, media_type=OCTETS if headers else JSON, headers=headers)
