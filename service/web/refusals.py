"""From an error to the refusal that a client sees: the one place where errors become HTTP."""

import math
from collections.abc import Callable, Mapping
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from service.batching import BatcherFailed, ClientDeadlineExceeded, Closed, DeadlineExceeded, QueueFull
from service.bundle import BundleError
from service.codec.arrays import InputError, InputTooLarge
from service.codec.decoders.pool import DecoderUnavailable
from service.codec.decoding import FieldError, NotJson
from service.codec.forms import FormError, FormFieldError
from service.inference.predictor import NonFinitePrediction
from service.inference.session import NetworkError, NetworkFailed
from service.models.store import ModelNotFound
from service.schemas import Problem
from service.web.problems import ProblemError, make_problem

# No answer was begun: the client went away first (the number is nginx's).
CLIENT_GONE = 499
HTTP_CODES = {404: "not_found", 405: "method_not_allowed"}
Headers = Mapping[str, str]
Refusal = tuple[Problem, Headers]


def refusal(error: Exception) -> Refusal:
    """What to answer, and with which headers; an error that nobody foresaw is a 500 that tells nothing."""
    for kind, translate in TRANSLATIONS.items():
        if isinstance(error, kind):
            return translate(error)
    return make_problem(500, "internal", "The service failed; the operator's log has the details."), {}


def _problem(error: ProblemError) -> Refusal:
    return error.problem, error.headers


def _not_json(error: NotJson) -> Refusal:
    return make_problem(400, "json", f"{error}"), {}


def _field(error: FieldError) -> Refusal:
    return make_problem(422, "field", f"{error}", field=error.field), {}


def _form(error: FormError) -> Refusal:
    return make_problem(400, "multipart", f"The body is no valid form: {error}."), {}


def _form_field(error: FormFieldError) -> Refusal:
    where = {"field": error.field, "found": error.found, "expected": error.expected}
    return make_problem(422, "field", f"{error}.", **where), {}


def _no_decoder(_: DecoderUnavailable) -> Refusal:
    detail = "No process could decode the images; try again later. The operator's log has the details."
    return make_problem(503, "decoder", detail), {"Retry-After": "1"}


def _input(error: InputError) -> Refusal:
    status, code = (413, "input_too_large") if isinstance(error, InputTooLarge) else (422, "input")
    where = {"field": error.field, "found": error.found, "expected": error.expected}
    return make_problem(status, code, f"{error}.", **where), {}


def _network(error: NetworkError) -> Refusal:
    return make_problem(422, "network", f"{error}"), {}


def _network_failed(_: NetworkFailed) -> Refusal:
    detail = "The model's network fails; the operator's log has the details."
    return make_problem(503, "network_failed", detail), {}


def _non_finite(error: NonFinitePrediction) -> Refusal:
    place = f"inputs[{error.index}]"
    detail = f"{place}: the network's output is not finite; the values may be far too large."
    expected = "values of the size the model was trained on"
    return make_problem(422, "non_finite_output", detail, field=place, expected=expected), {}


def _not_found(error: ModelNotFound) -> Refusal:
    return make_problem(404, "model_not_found", f"{error}."), {}


def _queue_full(error: QueueFull) -> Refusal:
    seconds = math.ceil(error.retry_after_seconds)
    detail = f"The queue is full: {error}. Try again in {seconds} s."
    return make_problem(429, "queue_full", detail), {"Retry-After": str(seconds)}


def _deadline(error: DeadlineExceeded) -> Refusal:
    return make_problem(504, "deadline", f"{error}.".capitalize()), {}


def _client_deadline(error: ClientDeadlineExceeded) -> Refusal:
    return make_problem(504, "deadline_client", f"{error}; the request itself allowed no more time.".capitalize()), {}


def _closed(_: Closed) -> Refusal:
    return make_problem(503, "draining", "The service or the model is shutting down."), {"Retry-After": "1"}


def _failed(_: BatcherFailed) -> Refusal:
    detail = "The service computes nothing any more and wants to be restarted; the operator's log has the details."
    return make_problem(503, "batcher_failed", detail), {}


def _bundle(error: BundleError) -> Refusal:
    return make_problem(400, "bundle", f"{error}"), {}


def _gone(_: ClientDisconnect) -> Refusal:
    return Problem(title="Client Closed Request", status=CLIENT_GONE, detail="The client is gone.", code="gone"), {}


def _http(error: HTTPException) -> Refusal:
    code = HTTP_CODES.get(error.status_code, "http")
    return make_problem(error.status_code, code, f"{error.detail}."), error.headers or {}


TRANSLATIONS: Mapping[type[Exception], Callable[[Any], Refusal]] = {
    ProblemError: _problem,
    NotJson: _not_json,
    FieldError: _field,
    FormError: _form,
    FormFieldError: _form_field,
    DecoderUnavailable: _no_decoder,
    InputError: _input,
    NetworkError: _network,
    NetworkFailed: _network_failed,
    NonFinitePrediction: _non_finite,
    ModelNotFound: _not_found,
    QueueFull: _queue_full,
    ClientDeadlineExceeded: _client_deadline,
    DeadlineExceeded: _deadline,
    Closed: _closed,
    BatcherFailed: _failed,
    BundleError: _bundle,
    ClientDisconnect: _gone,
    HTTPException: _http,
}
