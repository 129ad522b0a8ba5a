"""From an exception to the error response: for everything that is raised in a route."""

import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from ..batching import BatcherFailed, ClientDeadlineExceeded, Closed, DeadlineExceeded, QueueFull
from ..codec.arrays import InputError, InputTooLarge
from ..codec.decoders.pool import DecoderUnavailable
from ..codec.decoding import FieldError, NotJson
from ..codec.forms import FormError, FormFieldError
from ..format.text import printable
from ..inference.graph import NetworkError, NetworkFailed
from ..models.rates import RateError
from ..models.store import ModelNotFound, ModelsLoading
from ..monitoring.metrics import Metrics
from ..schemas import Problem
from .disconnect import ClientGaveUp
from .problems import CLIENT_GONE, ProblemError, make_problem

HTTP_CODES = {404: "not_found", 405: "method_not_allowed"}
Headers = Mapping[str, str]
Answer = tuple[Problem, Headers]
log = logging.getLogger("demur")


@dataclass(frozen=True)
class Told:
    """detail: with what the exception says. again: whether to try again later. Where the exception has a field, the
    problem names it."""

    status: int
    code: str
    detail: str = "{error}."
    again: bool = False


WHERE = "field", "found", "expected"
LOG = "; the operator's log has the details."
UNFORESEEN = Told(500, "internal", f"The service failed{LOG}")
# The first that an exception is a kind of.
ANSWERS: Mapping[type[Exception], Told] = {
    NotJson: Told(400, "json", "{error}"),
    FieldError: Told(422, "field", "{error}"),
    FormError: Told(400, "multipart", "The body is no valid form: {error}."),
    FormFieldError: Told(422, "field"),
    DecoderUnavailable: Told(503, "decoder", f"No process could read the images or texts{LOG}", True),
    InputTooLarge: Told(413, "input_too_large"),
    InputError: Told(422, "input"),
    RateError: Told(422, "false_reject_rate"),
    NetworkError: Told(422, "network", "{error}"),
    NetworkFailed: Told(503, "network_failed", f"The model's network fails{LOG}"),
    ModelsLoading: Told(503, "loading", "Models are still being loaded: {error}; try again later.", True),
    ModelNotFound: Told(404, "model_not_found"),
    QueueFull: Told(429, "queue_full", "The queue is full: {error}. Try again in {seconds} s.", True),
    ClientDeadlineExceeded: Told(504, "deadline_client", "{capital}; the request itself allowed no more time."),
    DeadlineExceeded: Told(504, "deadline", "{capital}."),
    Closed: Told(503, "draining", "The service or the model is shutting down.", True),
    BatcherFailed: Told(503, "batcher_failed", f"The service computes nothing any more and wants to be restarted{LOG}"),
    ClientGaveUp: Told(CLIENT_GONE, "gone_slow", "The client is gone."),
    ClientDisconnect: Told(CLIENT_GONE, "gone", "The client is gone."),
}
RAISED = (ProblemError, HTTPException, *ANSWERS)


def refusal(error: Exception, metrics: Metrics) -> Answer:
    """`problem_of`, counted, and told to the operator."""
    problem, headers = problem_of(error)
    metrics.errors.labels(problem.code).inc()
    if log.isEnabledFor(logging.DEBUG):
        log.debug("refused, %d %s: %s", problem.status, problem.code, printable(problem.detail))
    if isinstance(error, NetworkFailed):  # an error of the bundle: its operator must know of it
        log.error("a prediction failed: %s", printable(str(error)))
    return problem, headers


def problem_of(error: Exception) -> Answer:
    """The problem and the headers to answer with; an unforeseen error is a 500 that reveals nothing."""
    if isinstance(error, ProblemError):
        return error.problem, error.headers
    if isinstance(error, HTTPException):
        code = HTTP_CODES.get(error.status_code, "http")
        return make_problem(error.status_code, code, f"{error.detail}."), error.headers or {}
    told = next((told for kind, told in ANSWERS.items() if isinstance(error, kind)), UNFORESEEN)
    seconds = math.ceil(getattr(error, "retry_after_seconds", 1))
    detail = told.detail.format(error=error, capital=str(error).capitalize(), seconds=seconds)
    names = WHERE if hasattr(error, "field") and told is not UNFORESEEN else ()
    where = {name: getattr(error, name, None) for name in names}
    return make_problem(told.status, told.code, detail, **where), {"Retry-After": str(seconds)} if told.again else {}
