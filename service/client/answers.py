"""HTTP answers -> errors."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from http import HTTPStatus

from ..schemas import Problem
from .errors import DemurError, UnexpectedAnswerError, refusal

EXCERPT = 200
SECONDS = re.compile(r"\d+(\.\d+)?", re.ASCII)


@dataclass(frozen=True)
class Answer:
    """A whole answer. The look-up of headers ignores case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


def error_of(answer: Answer, now: float) -> DemurError:
    """The error for this answer; `now` in seconds since 1970, for dates in its headers."""
    if answer.status < 400:
        return UnexpectedAnswerError(
            answer.status, f"expected 200 or a refusal; the body begins {excerpt(answer.body)}"
        )
    try:
        problem = Problem.model_validate_json(answer.body)
    except ValueError:  # not the service's own answer: a proxy's page, for example
        title = _phrase(answer.status)
        detail = f"{title}; the answer begins {excerpt(answer.body)}" if answer.body else f"{title}, without a body"
        problem = Problem(title=title, status=answer.status, code="http", detail=detail)
    return refusal(problem.model_copy(update={"status": answer.status}), retry_after(answer.headers, now))


def excerpt(body: bytes) -> str:
    """The beginning of a body, for an error message."""
    return repr(body[:EXCERPT].decode(errors="replace"))


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "Unknown status"


def retry_after(headers: Mapping[str, str], now: float) -> float | None:
    """The seconds that `Retry-After` asks to wait, from a number or a date; None without a readable one.

    A date is compared with the answer's own `Date` where there is one, so that the clocks may differ, or with `now`.
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
