"""The id of a request: the client's, or a random one."""

import re
import uuid

from fastapi import Request

from service.http.problems import ProblemError

HEADER = "X-Request-ID"
FORM = re.compile(r"[!-~]{1,128}")


def request_id(request: Request) -> str:
    """The header `X-Request-ID`, or without one, 32 random hexadecimal digits.

    Raises `ProblemError` (422) for a header of another form than 1 to 128 visible ASCII characters.
    """
    given = request.headers.get(HEADER)
    if given is None:
        return uuid.uuid4().hex
    if FORM.fullmatch(given) is None:
        found, expected = f"{given!r:.100}", "1 to 128 visible ASCII characters"
        detail = f"{HEADER}: found {found}, expected {expected}."
        raise ProblemError(422, "field", detail, field=HEADER, found=found, expected=expected)
    return given
