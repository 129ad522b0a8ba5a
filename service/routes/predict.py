"""POST /predict and /models/{name}/predict: read, decode, predict, respond."""

from dataclasses import dataclass
from functools import partial
from typing import Any

from fastapi import Request, Response
from pydantic_core import to_json

from ..batching import Answered
from ..codec.answers import View, predictions_json, warnings_of
from ..codec.decoding import IMAGES, JSON, NPY, Decoded, from_json, from_npy
from ..codec.encoded_images import Form, ImageFiles, ImageTexts
from ..codec.plain_texts import PlainTexts
from ..http.admission import Lease
from ..http.bodies import media_type, reserve, reserve_response
from ..http.disconnect import CancelOnDisconnect
from ..http.problems import MEDIA_TYPE, ProblemError
from ..http.request_id import HEADER as ID_HEADER
from ..http.request_id import request_id
from ..http.route_key import PARAMETER as ROUTE_PARAMETER
from ..http.route_key import ticket_of
from ..http.steps import steps_of
from ..inference.decision import Decision
from ..inference.predictor import NonFinitePrediction, Predictor
from ..models.served import AnyPrediction, ServedModel
from ..runtime import RequestDeadline, Runtime, runtime_of
from ..schemas import PredictRequest, PredictResponse, Problem
from .decode import decode_images, decode_numbers, decode_texts, read
from .direct import direct_router, lease_of, path_parameters
from .query import PARAMETERS, Query, query_of

router = direct_router(tags=["predict"])
MULTIPART = "multipart/form-data"
INLINE_ROWS = 64  # serialising so many takes no longer than handing them to a thread

ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"description": text, "content": {MEDIA_TYPE: {"schema": Problem.model_json_schema()}}}
    for status, text in {
        400: "The body is not what its media type or encoding says.",
        401: "An API key is needed.",
        404: "No such model.",
        408: "The body did not arrive in time.",
        413: "The body, an image or the batch is over a limit.",
        415: "The body is of another media type.",
        422: "A field is missing, unknown, or holds a value the model cannot take.",
        429: "The queue or the memory for requests is full; try again after `Retry-After` seconds.",
        503: "Shutting down, or not able to compute.",
        504: "The deadline passed before the answer was ready.",
    }.items()
}
BINARY = {"schema": {"type": "string", "format": "binary"}}
FILES = {
    "type": "object",
    "required": ["files"],
    "properties": {"files": {"type": "array", "items": {"type": "string", "format": "binary"}}},
}
BODY = {
    "required": True,
    "content": {
        JSON: {"schema": PredictRequest.model_json_schema()},
        MULTIPART: {"schema": FILES},
        NPY: BINARY,
        **dict.fromkeys(sorted(IMAGES), BINARY),
    },
}


ID_PARAMETER = {
    "name": ID_HEADER,
    "in": "header",
    "required": False,
    "description": "The answer's `id`, by which the operator finds the request again; without it, a random one.",
    "schema": {"type": "string", "minLength": 1, "maxLength": 128, "pattern": "^[!-~]+$"},
}


def _documented(*names: str) -> dict[str, Any]:
    extra = {"parameters": [*path_parameters(names), *PARAMETERS, ID_PARAMETER, ROUTE_PARAMETER], "requestBody": BODY}
    return {"response_model": PredictResponse, "responses": ERRORS, "openapi_extra": extra}


@router.post("/predict", **_documented())
async def predict(request: Request) -> Response:
    """Probabilities (or means and intervals), variances and reject flags for each example, by the default model."""
    return await _predict(request)


@router.post("/models/{name}/predict", **_documented("name"))
async def predict_by(request: Request) -> Response:
    """As `/predict`, by the latest version of the model `name`."""
    return await _predict(request)


@router.post("/models/{name}/versions/{version}/predict", **_documented("name", "version"))
async def predict_by_version(request: Request) -> Response:
    """As `/predict`, by this version of the model `name`."""
    return await _predict(request)


async def _predict(request: Request) -> Response:
    runtime, path = runtime_of(request), request.path_params
    deadline = runtime.deadline(request)
    lease = lease_of(request)
    served = runtime.store.find(path.get("name"), path.get("version"), partial(ticket_of, request))
    with deadline.attributed(), served.in_use() as model:
        identity, query = request_id(request), query_of(request)
        decision, view = model.decision(query.rate), query.view(model.manifest)
        kind, body = _kind(request), await _read(request, runtime, model, deadline, lease)
        steps = steps_of(request)
        steps.received(model)
        inputs = await _decode(request, runtime, deadline.at, kind, body, model.predictor)
        steps.decoded(len(inputs.array))
        reserve(lease, inputs.array.nbytes)
        try:
            async with CancelOnDisconnect(request):
                answered = await model.predict(inputs.array, deadline.at, decision, observed=not query.trial)
        except NonFinitePrediction as error:
            raise _non_finite(f"{inputs.field}[{error.index}]") from None
        steps.answered(answered)
        runtime.record(request, model, decision, identity, answered.result, inputs.array, not query.trial)
        strange = warnings_of(answered.result, model.predictor, inputs.array, inputs.field)
        warnings = [*inputs.warnings, *strange]
        seconds = steps.decode_seconds
        response = _JsonResponse(runtime, model, identity, decision, answered, warnings, seconds, view, query)
        few = len(answered.result) <= INLINE_ROWS
        content = response.body() if few else await runtime.in_thread(response.body)
        reserve_response(lease, len(content))
        return Response(content, media_type=JSON)


def _kind(request: Request) -> str:
    kind = media_type(request) or JSON
    if kind not in {JSON, NPY, MULTIPART, *IMAGES}:
        raise _unsupported(kind)
    return kind


async def _read(
    request: Request, runtime: Runtime, model: ServedModel, deadline: RequestDeadline, lease: Lease
) -> bytes:
    body = await read(request, runtime, deadline, lease)
    model.check_room()  # decode nothing for a request that the queue would reject
    return body


async def _decode(
    request: Request, runtime: Runtime, deadline: float, kind: str, body: bytes, predictor: Predictor
) -> Decoded:
    spec = predictor.manifest.input
    if kind == MULTIPART:
        content: Form | ImageFiles | ImageTexts | PlainTexts | Decoded = Form(request.headers["content-type"], body)
    elif kind in IMAGES:
        content = ImageFiles([body], "files")
    else:
        read = from_npy if kind == NPY else from_json
        content = await decode_numbers(request, runtime, deadline, len(body), lambda: read(body, spec, runtime.limits))
    if isinstance(content, Decoded):
        return content
    if isinstance(content, PlainTexts):
        array, warnings = await decode_texts(request, runtime, deadline, content, predictor)
        return Decoded(array, content.field, warnings)
    return Decoded(await decode_images(request, runtime, deadline, content, spec), content.field)


@dataclass(frozen=True)
class _JsonResponse:
    """The JSON body of a response."""

    runtime: Runtime
    model: ServedModel
    identity: str
    decision: Decision
    answered: Answered[AnyPrediction]
    warnings: list[str]
    decode_seconds: float
    view: View
    query: Query

    def body(self) -> bytes:
        runtime, model, decision, answered = self.runtime, self.model, self.decision, self.answered
        receipt = None if self.query.trial else runtime.receipt(model, decision, answered.result)
        answer: dict[str, Any] = {
            "id": self.identity,
            "model": {"name": model.name, "version": model.version, "digest": model.digest},
            "predictions": predictions_json(answered.result, decision, self.view),
            "warnings": self.warnings,
        }
        if answered.degraded or self.query.full:
            answer["degraded"] = answered.degraded
        if self.query.full:
            queued, computed = answered.queue_seconds, answered.compute_seconds
            seconds = {"decode": self.decode_seconds, "queue": queued, "compute": computed}
            answer["timing"] = {f"{step}_seconds": value for step, value in seconds.items()}
        return to_json(answer if receipt is None else answer | {"receipt": receipt})


def _non_finite(place: str) -> ProblemError:
    detail = f"{place}: the network's output is not finite; the values may be far too large."
    expected = "values of the size the model was trained on"
    return ProblemError(422, "non_finite_output", detail, field=place, expected=expected)


def _unsupported(kind: str) -> ProblemError:
    expected = f"{JSON}, {MULTIPART}, {NPY} or {', '.join(sorted(IMAGES))}"
    detail = f"Found the media type {kind!r:.100}, expected {expected}; send -H 'Content-Type: {JSON}' with JSON."
    return ProblemError(415, "media_type", detail, field="Content-Type", found=kind[:100], expected=expected)
