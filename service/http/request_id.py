"""The id of a request: the client's, or a random one. The log's lines about the request name it too."""

import random
import re
from collections.abc import Iterable
from contextvars import ContextVar

from starlette.datastructures import Headers

from .problems import ProblemError

HEADER = "X-Request-ID"
PARAMETER = {
    "name": HEADER,
    "in": "header",
    "required": False,
    "description": "The answer's `id`, by which the operator finds the request again; without it, a random one.",
    "schema": {"type": "string", "minLength": 1, "maxLength": 128, "pattern": "^[!-~]+$"},
}
FORM = re.compile(r"[!-~]{1,128}")
_HEADER = HEADER.lower().encode()
_CURRENT: ContextVar[str | None] = ContextVar("request_id", default=None)


def random_id() -> str:
    """32 random hexadecimal digits."""
    return f"{random.getrandbits(128):032x}"


def make_current(identity: str) -> None:
    """Of the request that runs in this context."""
    _CURRENT.set(identity)


def id_of(headers: Iterable[tuple[bytes, bytes]]) -> str:
    """The header `X-Request-ID` among raw ones, or without one of the right form, a random id."""
    given = next((value.decode("latin-1") for name, value in headers if name == _HEADER), "")
    return given if FORM.fullmatch(given) else random_id()


def current_id() -> str | None:
    """The id of the request that runs in this context, None outside of one."""
    return _CURRENT.get()


def request_id(headers: Headers) -> str:
    """The header `X-Request-ID`, or without one, the random id of the request; raises as `given_id`."""
    return given_id(headers) or current_id() or random_id()


def given_id(headers: Headers) -> str | None:
    """The header `X-Request-ID`, None without one.

    Raises `ProblemError` (422) for a header of another form than 1 to 128 visible ASCII characters.
    """
    given = headers.get(HEADER)
    if given is not None and FORM.fullmatch(given) is None:
        found, expected = f"{given!r:.100}", "1 to 128 visible ASCII characters"
        detail = f"{HEADER}: found {found}, expected {expected}."
        raise ProblemError(422, "field", detail, field=HEADER, found=found, expected=expected)
    return given
