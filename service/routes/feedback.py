"""POST /feedback: labels of earlier predictions, with the receipts of their answers."""

from typing import Any

from fastapi import Request, Response

from ..codec.decoding import JSON, parse_json
from ..codec.json_limits import MAX_NUMBERS, SLACK, JsonLimits, check_json_size
from ..feedback.receipts import Receipt
from ..http.admission import lease_of
from ..http.bodies import media_type, read_body
from ..http.problems import ProblemError
from ..models.served import ServedModel
from ..recording.feedback import Feedback
from ..runtime import Runtime, runtime_of
from ..schemas import FeedbackRequest, FeedbackResponse
from .direct import direct_router
from .predict import ERRORS

PATH = "/feedback"
MAX_FIELDS = 200_000  # colons may stand in the names of classes too
RESPONSES: dict[int | str, dict[str, Any]] = {
    status: ERRORS[status] for status in (400, 401, 404, 408, 413, 415, 422, 429, 503)
}
router = direct_router(tags=["feedback"])


@router.post(
    PATH,
    response_model=FeedbackResponse,
    responses=RESPONSES,
    openapi_extra={
        "requestBody": {"required": True, "content": {JSON: {"schema": FeedbackRequest.model_json_schema()}}}
    },
)
async def feedback(request: Request) -> Response:
    """Count the true labels of an answer's examples: a label that came before stays, so repeating is harmless."""
    runtime = runtime_of(request)
    counter = runtime.recording.feedback
    if counter is None:
        detail = "Found no secret for receipts, expected one: the operator has not set DEMUR_FEEDBACK_SECRET_FILE."
        raise ProblemError(404, "feedback_off", detail)
    body = await _read(request, runtime)
    parsed, receipt = await runtime.decoding.in_thread(lambda: _open(body, runtime, counter))
    model = _served(runtime, receipt)
    with model.in_use():
        response = await runtime.decoding.in_thread(
            lambda: counter.count(model, receipt, parsed, runtime.settings.interval_level)
        )
    return Response(response.model_dump_json(), media_type=JSON)


async def _read(request: Request, runtime: Runtime) -> bytes:
    kind, settings = media_type(request) or JSON, runtime.settings
    if kind != JSON:
        detail = f"Found the media type {kind!r:.100}, expected {JSON}; send -H 'Content-Type: {JSON}'."
        raise ProblemError(415, "media_type", detail, field="Content-Type", found=kind[:100], expected=JSON)
    limit, seconds = settings.max_body_bytes, settings.client_timeout_seconds
    return await read_body(request, limit, seconds, lease_of(request), runtime.decoding.threads)


def _open(body: bytes, runtime: Runtime, counter: Feedback) -> tuple[FeedbackRequest, Receipt]:
    check_json_size(body, JsonLimits(MAX_NUMBERS, runtime.settings.max_rows + SLACK, MAX_FIELDS))
    parsed = parse_json(body, FeedbackRequest)
    return parsed, counter.open(parsed.receipt)


def _served(runtime: Runtime, receipt: Receipt) -> ServedModel:
    """The model that answered; raises `ModelNotFound`, and `ProblemError` (404) where another bundle has its name."""
    model = runtime.store.find(receipt.name, receipt.version)
    if not model.digest.startswith(receipt.digest):
        detail = f"The bundle that answered is not served any more (digest {receipt.digest}...)."
        raise ProblemError(404, "model_not_found", detail, field="receipt")
    return model
