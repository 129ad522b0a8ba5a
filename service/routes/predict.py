"""POST /predict and /models/{name}/predict: read, decode, compute, answer."""

import time
from collections.abc import Callable
from typing import Annotated, Any

import anyio.to_thread
from fastapi import APIRouter, Depends, Request, Response
from pydantic_core import to_json

from service.admission import Lease
from service.answers import predictions_json
from service.batching import Answered
from service.bodies import media_type, read_body
from service.decoding import IMAGES, JSON, NPY, Decoded, from_files, from_json, from_npy
from service.multipart import files_of
from service.predictor import NonFinitePrediction
from service.problems import MEDIA_TYPE, ProblemError
from service.routes.waiting import while_connected
from service.runtime import Runtime, get_runtime
from service.schemas import PredictRequest, PredictResponse, Problem
from service.served import AnyPrediction, ServedModel

router = APIRouter(tags=["predict"])
RuntimeDependency = Annotated[Runtime, Depends(get_runtime)]
MULTIPART = "multipart/form-data"
# Work shorter than a change of threads is done where it is: parsing a body of so many bytes, writing so many rows.
INLINE_BYTES, INLINE_ROWS = 16 * 2**10, 64

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
DOCUMENTED: dict[str, Any] = {
    "response_model": PredictResponse,
    "responses": REFUSALS,
    "openapi_extra": {"requestBody": BODY},
}


@router.post("/predict", **DOCUMENTED)
async def predict(request: Request, runtime: RuntimeDependency) -> Response:
    """Probabilities (or means and intervals), variances and reject flags for each example, by the default model."""
    return await _predict(request, runtime, None, None)


@router.post("/models/{name}/predict", **DOCUMENTED)
async def predict_by(name: str, request: Request, runtime: RuntimeDependency) -> Response:
    """As `/predict`, by the latest version of the model `name`."""
    return await _predict(request, runtime, name, None)


@router.post("/models/{name}/versions/{version}/predict", **DOCUMENTED)
async def predict_by_version(name: str, version: str, request: Request, runtime: RuntimeDependency) -> Response:
    """As `/predict`, by this version of the model `name`."""
    return await _predict(request, runtime, name, version)


async def _predict(request: Request, runtime: Runtime, name: str | None, version: str | None) -> Response:
    deadline = runtime.deadline(request)
    with runtime.store.find(name, version).in_use() as model, runtime.bodies.lease() as lease:
        decode = await _decoder(request, runtime, model, lease)
        started = time.perf_counter()
        decoded = await _decode(runtime, decode)
        seconds = time.perf_counter() - started
        try:
            answered = await while_connected(request, model.predict(decoded.array, deadline))
        except NonFinitePrediction as error:
            raise _non_finite(f"{decoded.field}[{error.index}]") from None
        answer = _Answer(runtime, model, answered, seconds)
        body = answer.body() if len(answered.result) <= INLINE_ROWS else await anyio.to_thread.run_sync(answer.body)
        return Response(body, media_type=JSON)


class _Decode:
    """How a body is decoded, and whether that is quick."""

    def __init__(self, function: Callable[..., Decoded], data: Any, model: ServedModel, runtime: Runtime, quick: bool):
        self.function, self.data, self.quick = function, data, quick
        self.spec, self.limits = model.manifest.input, runtime.limits

    def __call__(self) -> Decoded:
        return self.function(self.data, self.spec, self.limits)


async def _decode(runtime: Runtime, decode: _Decode) -> Decoded:
    return decode() if decode.quick else await anyio.to_thread.run_sync(decode, limiter=runtime.decoders)


async def _decoder(request: Request, runtime: Runtime, model: ServedModel, lease: Lease) -> _Decode:
    """Read the body, and see by its media type how to decode it."""
    settings = runtime.settings
    kind = media_type(request) or JSON
    if kind not in {JSON, NPY, MULTIPART, *IMAGES}:
        raise _unsupported(kind)
    body = await read_body(request, settings.max_body_bytes, settings.body_timeout_seconds, lease)
    if kind == JSON:
        return _Decode(from_json, body, model, runtime, len(body) <= INLINE_BYTES and b'"images"' not in body)
    if kind == NPY:
        return _Decode(from_npy, body, model, runtime, len(body) <= INLINE_BYTES)
    files = await files_of(request.headers, body, settings.max_rows) if kind == MULTIPART else [body]
    return _Decode(from_files, files, model, runtime, False)


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
