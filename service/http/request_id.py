"""The id of a request: the client's, or a random one."""

import re
import uuid

from fastapi import Request

from probity.service.http.problems import ProblemError

HEADER = "X-Request-ID"
FORM = re.compile(r"[!-~]{1,128}")


def random_id() -> str:
    """32 random hexadecimal digits."""
    return uuid.uuid4().hex


def request_id(request: Request) -> str:
    """The header `X-Request-ID`, or without one, a random id; raises as `given_id`."""
    return given_id(request) or random_id()


def given_id(request: Request) -> str | None:
    """The header `X-Request-ID`, None without one.

    Raises `ProblemError` (422) for a header of another form than 1 to 128 visible ASCII characters.
    """
    given = request.headers.get(HEADER)
    if given is not None and FORM.fullmatch(given) is None:
        found, expected = f"{given!r:.100}", "1 to 128 visible ASCII characters"
        detail = f"{HEADER}: found {found}, expected {expected}."
        raise ProblemError(422, "field", detail, field=HEADER, found=found, expected=expected)
    return given
