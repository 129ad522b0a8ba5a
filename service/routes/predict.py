"""POST /predict and /models/{name}/predict: read, decode, predict, respond."""

from functools import partial
from typing import Any

from fastapi import Request, Response
from pydantic_core import to_json

from ..codec.answers import View, predictions_json
from ..codec.decoding import IMAGES, JSON, NPY, from_json, from_npy
from ..codec.encoded_images import Form, ImageFiles
from ..data_plane import Asked, Outcome, Reader, infer
from ..decoding import Content
from ..http.bodies import media_type
from ..http.problems import MEDIA_TYPE, ProblemError
from ..http.request_id import request_id
from ..models.served import ServedModel
from ..runtime import runtime_of
from ..schemas import PredictRequest, PredictResponse, Problem
from .direct import HEADERS, call_of, direct_router, path_parameters
from .query import PARAMETERS, Query, query_of

router = direct_router(tags=["predict"])
MULTIPART = "multipart/form-data"

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


def _documented(*names: str) -> dict[str, Any]:
    parameters = [*path_parameters(names), *PARAMETERS, *HEADERS]
    extra = {"parameters": parameters, "requestBody": BODY}
    return {"response_model": PredictResponse, "responses": ERRORS, "openapi_extra": extra}


@router.post("/predict", **_documented())
async def predict(request: Request) -> Response:
    """Probabilities (or means and intervals), variances and reject flags for each example, by the default model."""
    return await infer(call_of(request), partial(bind, request))


@router.post("/models/{name}/predict", **_documented("name"))
async def predict_by(request: Request) -> Response:
    """As `/predict`, by the version of the model `name` that answers: the one that is pinned, or the latest."""
    return await infer(call_of(request), partial(bind, request))


@router.post("/models/{name}/versions/{version}/predict", **_documented("name", "version"))
async def predict_by_version(request: Request) -> Response:
    """As `/predict`, by this version of the model `name`."""
    return await infer(call_of(request), partial(bind, request))


def bind(request: Request, model: ServedModel) -> Reader[Response]:
    """Refuses a wrong query, id or media type before the body is read."""
    identity, query, kind = request_id(request.headers), query_of(request), media_type(request) or JSON
    limits = runtime_of(request).decoding.limits
    model.decision(query.rate)
    encode = partial(_encode, identity, query, query.view(model.manifest))
    if kind not in {JSON, NPY, MULTIPART, *IMAGES}:
        raise _unsupported(kind)

    def read(body: bytes) -> Asked[Response]:
        content: Content
        if kind == MULTIPART:
            content = Form(request.headers["content-type"], body)
        elif kind in IMAGES:
            content = ImageFiles([body], "files")
        else:
            content = (from_npy if kind == NPY else from_json)(body, model.manifest.input, limits)
        return Asked(content, encode, identity, query.rate, trial=query.trial)

    return Reader(kind, read, len if kind in {JSON, NPY} else lambda _: 0)  # images are decoded later


def _encode(identity: str, query: Query, view: View, outcome: Outcome) -> Response:
    model, answered = outcome.model, outcome.answered
    receipt = None if query.trial else outcome.receipt()
    answer: dict[str, Any] = {
        "id": identity,
        "model": {"name": model.name, "version": model.version, "digest": model.digest},
        "predictions": predictions_json(answered.result, outcome.decision, view),
        "warnings": outcome.warnings,
    }
    if query.full:
        queued, computed = answered.queue_seconds, answered.compute_seconds
        seconds = {"decode": outcome.decode_seconds, "queue": queued, "compute": computed}
        answer["timing"] = {f"{step}_seconds": value for step, value in seconds.items()}
    return Response(to_json(answer if receipt is None else answer | {"receipt": receipt}), media_type=JSON)


def _unsupported(kind: str) -> ProblemError:
    expected = f"{JSON}, {MULTIPART}, {NPY} or {', '.join(sorted(IMAGES))}"
    detail = f"Found the media type {kind!r:.100}, expected {expected}; send -H 'Content-Type: {JSON}' with JSON."
    return ProblemError(415, "media_type", detail, field="Content-Type", found=kind[:100], expected=expected)
