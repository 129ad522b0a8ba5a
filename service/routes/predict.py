"""POST /predict: read, decode, compute, answer."""

import json
import math
import time
from typing import Annotated, Any

import anyio.to_thread
import numpy as np
import numpy.typing as npt
from fastapi import APIRouter, Depends, Request, Response
from pydantic import ValidationError

from service.answers import predictions_json
from service.bodies import read_json_body
from service.inputs import array_from_images, array_from_json
from service.predictor import NonFinitePrediction, Prediction, Predictor
from service.problems import MEDIA_TYPE, ProblemError
from service.runtime import Runtime, get_runtime
from service.schemas import PredictRequest, PredictResponse, Problem

router = APIRouter()
ENTRIES_FACTOR, ENTRIES_SLACK = 4, 200_000

REFUSALS: dict[int | str, dict[str, Any]] = {
    status: {"description": text, "content": {MEDIA_TYPE: {"schema": Problem.model_json_schema()}}}
    for status, text in {
        400: "The body is not JSON.",
        413: "The body, an image or the batch is over a limit.",
        415: "The body is of another media type.",
        422: "A field is missing, unknown, or holds a value the model cannot take.",
    }.items()
}
BODY = {"required": True, "content": {"application/json": {"schema": PredictRequest.model_json_schema()}}}


@router.post("/predict", response_model=PredictResponse, responses=REFUSALS, openapi_extra={"requestBody": BODY})
async def predict(request: Request, runtime: Annotated[Runtime, Depends(get_runtime)]) -> Response:
    """Probabilities (or means and intervals), variances and reject flags for each example."""
    body = await read_json_body(request, runtime.settings.max_body_bytes)
    arrived = time.perf_counter()
    answer = await anyio.to_thread.run_sync(_answer, runtime, body, arrived, limiter=runtime.limiter)
    return Response(answer, media_type="application/json")


def _answer(runtime: Runtime, body: bytes, arrived: float) -> bytes:
    """All the CPU work of a request, off the event loop."""
    started = time.perf_counter()
    predictor, metrics = runtime.predictor, runtime.metrics
    _check_entries(body, math.prod(predictor.manifest.input.shape) * runtime.settings.max_rows)
    request = _parse(body)
    inputs = _decode(runtime, request)
    decoded = time.perf_counter()
    prediction = _predict(predictor, inputs, "inputs" if request.images is None else "images")
    computed = time.perf_counter()
    metrics.queue_seconds.labels(predictor.manifest.name).observe(started - arrived)
    metrics.batch_answered(predictor, prediction, computed - decoded)
    manifest = predictor.manifest
    answer = {
        "model": {"name": manifest.name, "version": manifest.version, "digest": predictor.digest},
        "predictions": predictions_json(prediction, predictor, runtime.settings.interval_level),
        "timing": {"decode_seconds": decoded - started, "compute_seconds": computed - decoded},
    }
    return json.dumps(answer, allow_nan=False, ensure_ascii=False).encode()


def _predict(predictor: Predictor, inputs: npt.NDArray[np.generic], field: str) -> Prediction:
    try:
        return predictor.predict(inputs)
    except NonFinitePrediction as error:
        place = f"{field}[{error.index}]"
        detail = f"{place}: the network's output is not finite; the values may be far too large."
        raise ProblemError(
            422, "non_finite_output", detail, field=place, expected="values of the size the model was trained on"
        ) from None


def _decode(runtime: Runtime, request: PredictRequest) -> npt.NDArray[np.generic]:
    spec, settings = runtime.predictor.manifest.input, runtime.settings
    if request.images is not None:
        return array_from_images(request.images, spec, settings.max_rows, settings.max_pixels)
    assert request.inputs is not None
    return array_from_json(request.inputs, spec, settings.max_rows)


def _check_entries(body: bytes, numbers: int) -> None:
    """Refuse a body with far more entries than the largest batch has, before millions of objects are made of it.

    Parsing holds Python's lock, so a flood of entries would stop the event loop too; counting bytes does not.
    """
    most = ENTRIES_FACTOR * numbers + ENTRIES_SLACK
    if max(body.count(b","), body.count(b"["), body.count(b"{")) > most:
        detail = f"The body holds more than {most} entries."
        raise ProblemError(413, "body_too_large", detail, expected=f"at most {most} entries")


def _parse(body: bytes) -> PredictRequest:
    try:
        return PredictRequest.model_validate_json(body)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        if first["type"] == "json_invalid":
            raise ProblemError(400, "json", f"The body is not JSON: {first['msg']:.200}") from None
        field = ".".join(map(str, first["loc"]))[:100] or "body"
        raise ProblemError(422, "field", f"{field}: {first['msg']:.200}", field=field) from None
