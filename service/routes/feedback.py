"""POST /feedback: labels of earlier predictions, by the ids of their answers."""

import asyncio
import logging
import sqlite3
from collections.abc import Callable
from typing import Any, TypeVar

from fastapi import Request, Response

from probity.service.codec.decoding import JSON, parse_json
from probity.service.feedback.database import Answered, Labelled
from probity.service.feedback.memory import FeedbackMemory
from probity.service.http.bodies import media_type, read_body
from probity.service.http.problems import ProblemError
from probity.service.models.feedback import errors_of, outcomes_of
from probity.service.models.served import ServedModel
from probity.service.routes.direct import direct_router, lease_of
from probity.service.routes.predict import ERRORS
from probity.service.runtime import Runtime, runtime_of
from probity.service.schemas import FeedbackRequest, FeedbackResponse, ModelName

PATH = "/feedback"
MAX_BODY_BYTES = 2**20
PAUSES = (0.06, 0.1, 0.5)  # seconds before looking again; another worker writes after `GATHER_SECONDS`
T = TypeVar("T")
RESPONSES: dict[int | str, dict[str, Any]] = {
    **{status: ERRORS[status] for status in (400, 401, 404, 408, 413, 415, 422, 429, 503)},
    409: ERRORS[404] | {"description": "Several requests had this id."},
}
router = direct_router(tags=["feedback"])
log = logging.getLogger("probity")


@router.post(
    PATH,
    response_model=FeedbackResponse,
    responses=RESPONSES,
    openapi_extra={
        "requestBody": {"required": True, "content": {JSON: {"schema": FeedbackRequest.model_json_schema()}}}
    },
)
async def feedback(request: Request) -> Response:
    """Count the true labels of a request's examples: a label that came before stays, so repeating is harmless."""
    runtime = runtime_of(request)
    memory = runtime.feedback
    if memory is None:
        detail = "Found no memory of predictions, expected one: the operator has not set PROBITY_FEEDBACK_FILE."
        raise ProblemError(404, "feedback_off", detail)
    parsed = await _parse(request, runtime)
    answered = await _find(runtime, memory, parsed.id)
    if answered.repeated:
        raise _repeated(parsed.id)
    model = _served(runtime, answered)
    with model.in_use():
        outcomes = outcomes_of(model, answered.answers, parsed, runtime.settings.interval_level)
        errors = errors_of(model, answered.answers, outcomes)
        labelled: Labelled | None = await _in_memory(
            memory, lambda: memory.label(answered, outcomes.known, errors, model.expected_accuracy)
        )
        if labelled is None:
            raise _unknown(parsed.id)
        model.metrics.feedback.count(outcomes, answered.answers.decisions, labelled.new)
        if labelled.evidence is not None:
            model.metrics.feedback.show(labelled.evidence)
    counted, known = int(labelled.new.sum()), int(outcomes.known.sum())
    named = ModelName(name=model.name, version=model.version, digest=model.digest)
    response = FeedbackResponse(
        id=parsed.id, model=named, examples=len(labelled.new), counted=counted, already_labelled=known - counted
    )
    return Response(response.model_dump_json(), media_type=JSON)


async def _parse(request: Request, runtime: Runtime) -> FeedbackRequest:
    kind, settings = media_type(request) or JSON, runtime.settings
    if kind != JSON:
        detail = f"Found the media type {kind!r:.100}, expected {JSON}; send -H 'Content-Type: {JSON}'."
        raise ProblemError(415, "media_type", detail, field="Content-Type", found=kind[:100], expected=JSON)
    limit = min(MAX_BODY_BYTES, settings.max_body_bytes)
    lease = lease_of(request)
    body = await read_body(request, limit, settings.body_timeout_seconds, lease, runtime.body_threads)
    return await runtime.in_thread(lambda: parse_json(body, FeedbackRequest))


async def _in_memory(memory: FeedbackMemory, work: Callable[[], T]) -> T:
    """The result of `work` in the memory's own thread; raises `ProblemError` (503) where the disk fails."""
    try:
        return await asyncio.get_running_loop().run_in_executor(memory.threads, work)
    except sqlite3.Error as error:
        log.error("The feedback file fails: %s", error)
        detail = "The memory of predictions fails; try again later. The operator's log has the details."
        raise ProblemError(503, "feedback_file", detail, headers={"Retry-After": "1"}) from None


async def _find(runtime: Runtime, memory: FeedbackMemory, request_id: str) -> Answered:
    """The answers; another worker may be about to write them. Raises `ProblemError` (404)."""
    for pause in (0.0, *(PAUSES if runtime.settings.workers > 1 else ())):
        await asyncio.sleep(pause)
        if (answered := await _in_memory(memory, lambda: memory.find(request_id))) is not None:
            return answered
    raise _unknown(request_id)


def _served(runtime: Runtime, answered: Answered) -> ServedModel:
    """The model that answered; raises `ModelNotFound`, and `ProblemError` (404) where a newer bundle has its name."""
    model = runtime.store.find(answered.model, answered.version)
    if model.digest != answered.digest:
        detail = f"The bundle that answered is not served any more (digest {answered.digest:.16}...)."
        raise ProblemError(404, "model_not_found", detail, field="id")
    return model


def _unknown(request_id: str) -> ProblemError:
    expected = "the id of an answer that this service remembers"
    detail = f"id: found {request_id!r:.150}, expected {expected}; it may be too old, or another instance's."
    return ProblemError(404, "feedback_unknown", detail, field="id", found=request_id, expected=expected)


def _repeated(request_id: str) -> ProblemError:
    expected = "an id that one request had"
    detail = f"id: found {request_id!r:.150}, which several requests with different answers had, expected {expected}."
    return ProblemError(409, "feedback_repeated", detail, field="id", found=request_id, expected=expected)
