"""Which share of the requests a request belongs to, where versions of a model share them."""

import hashlib
import random

from starlette.datastructures import Headers

HEADER = "X-Route-Key"
PARAMETER = {
    "name": HEADER,
    "in": "header",
    "required": False,
    "description": "Requests with the same key get the same version, where several share the requests: such as a user.",
    "schema": {"type": "string"},
}


def ticket_of(headers: Headers) -> float:
    """From 0 to 1, below 1: of the key in the header always the same, without one by chance."""
    key = headers.get(HEADER)
    if key is None:
        return random.random()  # noqa: S311  no secret
    return int.from_bytes(hashlib.sha256(key.encode()).digest()[:6]) / 2**48
