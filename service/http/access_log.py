"""The access log: a line for each request, once it is answered."""

import logging
from http import HTTPStatus
from urllib.parse import quote

from starlette.types import Scope

from .steps import STEPS, Steps

ACCESS = "demur.access"
MOST_SHOWN = 300  # characters of a path
PHRASES: dict[int, str] = {status.value: f" {status.phrase}" for status in HTTPStatus}
log = logging.getLogger(ACCESS)


def log_request(scope: Scope, status: int, seconds: float, size: int, complete: bool = True) -> None:
    """Say who asked for what, without the query, which may hold a key; how it was answered, in which time, with how
    many bytes, and whether the client was still there then; and which key and model took part."""
    if not log.isEnabledFor(logging.INFO):
        return
    client, steps, state = scope.get("client"), scope.get(STEPS), scope.get("state") or {}
    model = steps.model if isinstance(steps, Steps) else None
    asked = {
        "client": "unknown" if client is None else f"{client[0]}:{client[1]}",
        "method": scope["method"],
        "path": quote(scope["path"])[:MOST_SHOWN],
    }
    answered = {"status": status, "seconds": round(seconds, 6), "bytes": size, "complete": complete}
    named = {
        "key": state.get("api_key"),
        "model": None if model is None else model.name,
        "version": None if model is None else model.version,
    }
    who = "".join(f" {name}={value}" for name, value in named.items() if value is not None)
    line = f'{asked["client"]} - "{asked["method"]} {asked["path"]} HTTP/{scope["http_version"]}" '
    line += f"{status}{PHRASES.get(status, '')} {1e3 * seconds:.1f}ms {size}B{'' if complete else ' incomplete'}{who}"
    log.info("%s", line, extra={"fields": asked | answered | named})
