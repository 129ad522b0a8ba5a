"""The access log: a line for each request, once it is answered."""

import logging
from http import HTTPStatus
from urllib.parse import quote

from .exchange import Exchange

ACCESS = "demur.access"
MOST_SHOWN = 300  # characters of a path
PHRASES: dict[int, str] = {status.value: f" {status.phrase}" for status in HTTPStatus}
log = logging.getLogger(ACCESS)


def log_exchange(exchange: Exchange, seconds: float) -> None:
    """Say who asked for what, without the query, which may hold a key; how it was answered, in which time, with how
    many bytes, and whether the client was still there then; and which key and model took part."""
    if not log.isEnabledFor(logging.INFO):
        return
    client, model, status, size = exchange.client, exchange.steps.model, exchange.status, exchange.size
    asked = {
        "client": "unknown" if client is None else f"{client[0]}:{client[1]}",
        "method": exchange.method,
        "path": quote(exchange.path[:MOST_SHOWN])[:MOST_SHOWN],
    }
    answered = {"status": status, "seconds": round(seconds, 6), "bytes": size, "complete": exchange.complete}
    named = {
        "key": exchange.key,
        "model": None if model is None else model.name,
        "version": None if model is None else model.version,
    }
    who = "".join(f" {name}={value}" for name, value in named.items() if value is not None)
    complete = "" if exchange.complete else " incomplete"
    line = f'{asked["client"]} - "{asked["method"]} {asked["path"]} HTTP/{exchange.version}" '
    line += f"{status}{PHRASES.get(status, '')} {1e3 * seconds:.1f}ms {size}B{complete}{who}"
    log.info("%s", line, extra={"fields": asked | answered | named})
