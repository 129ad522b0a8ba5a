"""From an exception to the error response: for everything that is raised in a route."""

import math
from collections.abc import Callable, Mapping
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from ..batching import BatcherFailed, ClientDeadlineExceeded, Closed, DeadlineExceeded, QueueFull
from ..codec.arrays import InputError, InputTooLarge
from ..codec.decoders.pool import DecoderUnavailable
from ..codec.decoding import FieldError, NotJson
from ..codec.forms import FormError, FormFieldError
from ..inference.graph import NetworkError, NetworkFailed
from ..models.rates import RateError
from ..models.store import ModelNotFound, ModelsLoading
from ..schemas import Problem
from .disconnect import ClientGaveUp
from .problems import ProblemError, make_problem

# The client disconnected before a response was begun (nginx's number).
CLIENT_GONE = 499
HTTP_CODES = {404: "not_found", 405: "method_not_allowed"}
Headers = Mapping[str, str]
Answer = tuple[Problem, Headers]


def problem_of(error: Exception) -> Answer:
    """The problem and the headers to answer with; an unforeseen error is a 500 that reveals nothing."""
    for kind, translate in TRANSLATIONS.items():
        if isinstance(error, kind):
            return translate(error)
    return make_problem(500, "internal", "The service failed; the operator's log has the details."), {}


def _problem(error: ProblemError) -> Answer:
    return error.problem, error.headers


def _not_json(error: NotJson) -> Answer:
    return make_problem(400, "json", f"{error}"), {}


def _field(error: FieldError) -> Answer:
    return make_problem(422, "field", f"{error}", field=error.field), {}


def _form(error: FormError) -> Answer:
    return make_problem(400, "multipart", f"The body is no valid form: {error}."), {}


def _form_field(error: FormFieldError) -> Answer:
    where = {"field": error.field, "found": error.found, "expected": error.expected}
    return make_problem(422, "field", f"{error}.", **where), {}


def _no_decoder(_: DecoderUnavailable) -> Answer:
    detail = "No process could read the images or texts; try again later. The operator's log has the details."
    return make_problem(503, "decoder", detail), {"Retry-After": "1"}


def _input(error: InputError) -> Answer:
    status, code = (413, "input_too_large") if isinstance(error, InputTooLarge) else (422, "input")
    where = {"field": error.field, "found": error.found, "expected": error.expected}
    return make_problem(status, code, f"{error}.", **where), {}


def _rate(error: RateError) -> Answer:
    where = {"field": "false_reject_rate", "found": error.found, "expected": error.expected}
    return make_problem(422, "false_reject_rate", f"{error}.", **where), {}


def _network(error: NetworkError) -> Answer:
    return make_problem(422, "network", f"{error}"), {}


def _network_failed(_: NetworkFailed) -> Answer:
    detail = "The model's network fails; the operator's log has the details."
    return make_problem(503, "network_failed", detail), {}


def _not_found(error: ModelNotFound) -> Answer:
    return make_problem(404, "model_not_found", f"{error}."), {}


def _loading(error: ModelsLoading) -> Answer:
    return make_problem(503, "loading", f"Models are still being loaded: {error}; try again later."), {
        "Retry-After": "1"
    }


def _queue_full(error: QueueFull) -> Answer:
    seconds = math.ceil(error.retry_after_seconds)
    detail = f"The queue is full: {error}. Try again in {seconds} s."
    return make_problem(429, "queue_full", detail), {"Retry-After": str(seconds)}


def _deadline(error: DeadlineExceeded) -> Answer:
    return make_problem(504, "deadline", f"{error}.".capitalize()), {}


def _client_deadline(error: ClientDeadlineExceeded) -> Answer:
    return make_problem(504, "deadline_client", f"{error}; the request itself allowed no more time.".capitalize()), {}


def _closed(_: Closed) -> Answer:
    return make_problem(503, "draining", "The service or the model is shutting down."), {"Retry-After": "1"}


def _failed(_: BatcherFailed) -> Answer:
    detail = "The service computes nothing any more and wants to be restarted; the operator's log has the details."
    return make_problem(503, "batcher_failed", detail), {}


def _gone(_: ClientDisconnect, code: str = "gone") -> Answer:
    return Problem(title="Client Closed Request", status=CLIENT_GONE, detail="The client is gone.", code=code), {}


def _gave_up(error: ClientGaveUp) -> Answer:
    return _gone(error, "gone_slow")


def _http(error: HTTPException) -> Answer:
    code = HTTP_CODES.get(error.status_code, "http")
    return make_problem(error.status_code, code, f"{error.detail}."), error.headers or {}


TRANSLATIONS: Mapping[type[Exception], Callable[[Any], Answer]] = {
    ProblemError: _problem,
    NotJson: _not_json,
    FieldError: _field,
    FormError: _form,
    FormFieldError: _form_field,
    DecoderUnavailable: _no_decoder,
    InputError: _input,
    RateError: _rate,
    NetworkError: _network,
    NetworkFailed: _network_failed,
    ModelsLoading: _loading,  # a kind of the next
    ModelNotFound: _not_found,
    QueueFull: _queue_full,
    ClientDeadlineExceeded: _client_deadline,
    DeadlineExceeded: _deadline,
    Closed: _closed,
    BatcherFailed: _failed,
    ClientGaveUp: _gave_up,  # a kind of the next
    ClientDisconnect: _gone,
    HTTPException: _http,
}
