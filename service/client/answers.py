"""From an HTTP answer to what it says, or to the error that it is."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from http import HTTPStatus

from service.client.errors import ProbityError, UnexpectedAnswerError, refusal
from service.schemas import Problem

EXCERPT = 200
SECONDS = re.compile(r"\d+(\.\d+)?", re.ASCII)


@dataclass(frozen=True)
class Answer:
    """A whole answer. The headers' names are looked up without regard to case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


def error_of(answer: Answer, now: float) -> ProbityError:
    """The error that this answer is; `now` is the time in seconds since 1970, for dates in it."""
    if answer.status < 400:
        return UnexpectedAnswerError(
            answer.status, f"expected 200 or a refusal; the body begins {excerpt(answer.body)}"
        )
    try:
        problem = Problem.model_validate_json(answer.body)
    except ValueError:  # not the service's own: a proxy's page, for example
        title = _phrase(answer.status)
        detail = f"{title}; the answer begins {excerpt(answer.body)}" if answer.body else f"{title}, without a body"
        problem = Problem(title=title, status=answer.status, code="http", detail=detail)
    return refusal(problem.model_copy(update={"status": answer.status}), retry_after(answer.headers, now))


def excerpt(body: bytes) -> str:
    """The beginning of a body, to be shown."""
    return repr(body[:EXCERPT].decode(errors="replace"))


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "Unknown status"


def retry_after(headers: Mapping[str, str], now: float) -> float | None:
    """The seconds that `Retry-After` asks to wait, given as such or as a date; None without a readable one.

    A date is compared with the answer's own `Date`, so that clocks that differ do no harm, or else with `now`.
    """
    text = headers.get("retry-after", "").strip()
    if SECONDS.fullmatch(text):
        return float(text)
    then = _timestamp(text)
    if then is None:
        return None
    sent = _timestamp(headers.get("date", ""))
    return max(then - (now if sent is None else sent), 0.0)


def _timestamp(text: str) -> float | None:
    try:
        return parsedate_to_datetime(text).timestamp()
    except (ValueError, TypeError, OverflowError):
        return None
