"""POST /predict and /models/{name}/predict: read, decode, compute, answer."""

import time
from typing import Any

import anyio.to_thread
from fastapi import Request, Response
from pydantic_core import to_json

from service.answers import predictions_json
from service.batching import Answered
from service.bundle import InputSpec
from service.decoding import IMAGES, JSON, NPY, Decoded, from_files, from_json, from_npy
from service.inputs import InputLimits
from service.models.served import AnyPrediction, ServedModel
from service.predictor import NonFinitePrediction
from service.routes.decoded import decoded
from service.routes.direct import direct_router, path_parameters
from service.routes.waiting import Connected
from service.runtime import Runtime, runtime_of
from service.schemas import PredictRequest, PredictResponse, Problem
from service.web.admission import Lease
from service.web.bodies import media_type, read_body, take_room
from service.web.multipart import files_of
from service.web.problems import MEDIA_TYPE, ProblemError

router = direct_router(tags=["predict"])
MULTIPART = "multipart/form-data"
INLINE_ROWS = 64  # writing so many takes no longer than a change of threads

REFUSALS: dict[int | str, dict[str, Any]] = {
    status: {"description": text, "content": {MEDIA_TYPE: {"schema": Problem.model_json_schema()}}}
    for status, text in {
        400: "The body is not what its media type or encoding says.",
        401: "An API key is needed.",
        404: "No such model.",
        408: "The body did not arrive in time.",
        413: "The body, an image or the batch is over a limit.",
        415: "The body is of another media type.",
        422: "A field is missing, unknown, or holds a value the model cannot take.",
        429: "The queue is full; try again after `Retry-After` seconds.",
        503: "Shutting down, or not able to compute.",
        504: "The deadline passed while the request waited.",
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
    extra = {"parameters": path_parameters(names), "requestBody": BODY}
    return {"response_model": PredictResponse, "responses": REFUSALS, "openapi_extra": extra}


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
    runtime, named = runtime_of(request), request.path_params
    deadline = runtime.deadline(request)
    with runtime.store.find(named.get("name"), named.get("version")).in_use() as model, runtime.bodies.lease() as lease:
        kind, body = _kind(request), await _read(request, runtime, model, lease)
        started = time.perf_counter()
        found = await _decoded(request, runtime, deadline, kind, body, model.manifest.input)
        seconds = time.perf_counter() - started
        take_room(lease, found.array.nbytes)
        try:
            async with Connected(request):
                answered = await model.predict(found.array, deadline)
        except NonFinitePrediction as error:
            raise _non_finite(f"{found.field}[{error.index}]") from None
        answer = _Answer(runtime, model, answered, seconds)
        few = len(answered.result) <= INLINE_ROWS
        return Response(answer.body() if few else await anyio.to_thread.run_sync(answer.body), media_type=JSON)


def _kind(request: Request) -> str:
    kind = media_type(request) or JSON
    if kind not in {JSON, NPY, MULTIPART, *IMAGES}:
        raise _unsupported(kind)
    return kind


async def _read(request: Request, runtime: Runtime, model: ServedModel, lease: Lease) -> bytes:
    settings = runtime.settings
    body = await read_body(request, settings.max_body_bytes, settings.body_timeout_seconds, lease)
    model.check_room()  # before any work is done for a request that would be turned away after it
    return body


async def _decoded(
    request: Request, runtime: Runtime, deadline: float, kind: str, body: bytes, spec: InputSpec
) -> Decoded:
    files: list[bytes] = [body]
    if kind == MULTIPART:
        files = await files_of(request.headers, body, runtime.limits.rows(spec))
    # Behind a backslash, a name may be spelled in many ways.
    images = kind in {MULTIPART, *IMAGES} or (kind == JSON and (b'"images"' in body or b"\\" in body))

    def decode(limits: InputLimits) -> Decoded:
        if kind == JSON:
            return from_json(body, spec, limits)
        return from_npy(body, spec, limits) if kind == NPY else from_files(files, spec, limits)

    return await decoded(request, runtime, deadline, len(body), images, decode)


class _Answer:
    """The JSON that is sent."""

    def __init__(
        self, runtime: Runtime, model: ServedModel, answered: Answered[AnyPrediction], decode_seconds: float
    ) -> None:
        self.level, self.model, self.answered = runtime.settings.interval_level, model, answered
        self.timing = {
            "decode_seconds": decode_seconds,
            "queue_seconds": answered.queue_seconds,
            "compute_seconds": answered.compute_seconds,
        }

    def body(self) -> bytes:
        model = self.model
        return to_json(
            {
                "model": {"name": model.name, "version": model.version, "digest": model.digest},
                "predictions": predictions_json(self.answered.result, model.predictor, self.level),
                "degraded": self.answered.late,
                "timing": self.timing,
            }
        )


def _non_finite(place: str) -> ProblemError:
    detail = f"{place}: the network's output is not finite; the values may be far too large."
    expected = "values of the size the model was trained on"
    return ProblemError(422, "non_finite_output", detail, field=place, expected=expected)


def _unsupported(kind: str) -> ProblemError:
    expected = f"{JSON}, {MULTIPART}, {NPY} or {', '.join(sorted(IMAGES))}"
    detail = f"Found the media type {kind!r:.100}, expected {expected}; send -H 'Content-Type: {JSON}' with JSON."
    return ProblemError(415, "media_type", detail, field="Content-Type", found=kind[:100], expected=expected)
