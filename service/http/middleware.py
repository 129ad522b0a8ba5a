"""ASGI middleware around every request; streams and disconnects pass through untouched."""

import asyncio
import time
from collections.abc import Collection, Mapping, Sequence

from fastapi import Response
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..monitoring.metrics import Metrics
from ..security.api_keys import KeyRing
from .access_log import log_request
from .disconnect import disconnect_event
from .errors import CLIENT_GONE
from .problems import make_problem, render
from .request_id import HEADER, identify

SECURITY_HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
)
# A JSON response needs nothing; a page sets the policy that it needs.
CONTENT_POLICY, NO_CONTENT_POLICY = b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"
# Exact paths: a prefix would also match other spellings of protected paths.
PUBLIC_PATHS = frozenset({"/health/live", "/health/ready", "/v2/health/live", "/v2/health/ready"})
METRICS_PATH = "/metrics"


class SecurityHeaders:
    """Add headers that keep browsers from sniffing, framing and caching; while draining, add `Connection: close`."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = with_security_headers(message["headers"])
                message["headers"] = _with_close(headers) if scope["app"].state.runtime.draining else headers
            await send(message)

        await self.app(scope, receive, with_headers)


def with_security_headers(headers: Sequence[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """The headers, and the security headers that are not among them."""
    given = {name.lower(): value for name, value in headers}
    missing = [pair for pair in SECURITY_HEADERS if pair[0] not in given]
    if CONTENT_POLICY not in given:
        missing.append((CONTENT_POLICY, NO_CONTENT_POLICY))
    return [*headers, *missing]


def secured(response: Response) -> Response:
    """The response with the security headers, for responses that do not pass through `SecurityHeaders`."""
    response.raw_headers = with_security_headers(response.raw_headers)
    return response


def _with_close(headers: Sequence[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    return [*(pair for pair in headers if pair[0].lower() != b"connection"), (b"connection", b"close")]


class RequestIds:
    """Give every request an id, for the log, and send it back as `X-Request-ID`, whatever the answer."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        header = (HEADER.lower().encode(), identify(scope).encode())

        async def with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], header]
            await send(message)

        await self.app(scope, receive, with_id)


class RequestMetrics:
    """Count and time requests by route template, so that clients cannot create labels, and log them where that is
    wanted."""

    def __init__(self, app: ASGIApp, metrics: Metrics, access_log: bool) -> None:
        self.app, self.metrics, self.access_log = app, metrics, access_log

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started, status, size = time.perf_counter(), CLIENT_GONE, 0

        async def note_status(message: Message) -> None:
            nonlocal status, size
            if message["type"] == "http.response.start":
                status = message["status"]
            size += len(message.get("body", b""))
            await send(message)

        self.metrics.in_flight.inc()
        try:
            await self.app(scope, receive, note_status)
        except asyncio.CancelledError:  # the time to finish after SIGTERM is over
            if status == CLIENT_GONE:
                problem = make_problem(503, "draining", "The service shut down before the request was complete.")
                await secured(render(scope["path"], problem))(scope, receive, note_status)
        except Exception:
            status = 500
            raise
        finally:
            self.metrics.in_flight.dec()
            route = getattr(scope.get("route"), "path", "unmatched")
            seconds = time.perf_counter() - started
            self.metrics.answered(scope["method"], route, status, seconds)
            if self.access_log:
                event = disconnect_event(scope)
                complete = event is None or not event.is_set
                log_request(scope, status, seconds, 0 if scope["method"] == "HEAD" else size, complete)


class ApiKeys:
    """Answer requests without a valid key with 401; keys come as `Authorization: Bearer KEY` or `X-API-Key: KEY`.

    `own`: the keys of single paths, None: those of the others; `keys`: those of all other paths, None: none is needed.

    Health is public for load balancers and monitoring, and so are the paths in `public`. Put this inside the CORS
    middleware, which answers browsers' preflights (sent without a key) and lets pages read the 401. The key's name
    is stored in the scope's state as `api_key`.
    """

    def __init__(
        self,
        app: ASGIApp,
        keys: KeyRing | None,
        metrics: Metrics,
        public: Collection[str] = (),
        own: Mapping[str, KeyRing | None] | None = None,
    ) -> None:
        self.app, self.keys, self.own, self.metrics = app, keys, own or {}, metrics
        self.public = PUBLIC_PATHS | set(public)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        ring = (self.own.get(scope["path"]) or self.keys) if scope["type"] == "http" else None
        if ring is None or scope["path"] in self.public:
            await self.app(scope, receive, send)
            return
        keys = presented_keys(Headers(scope=scope))
        owner = next((owner for key in keys if (owner := ring.owner(key)) is not None), None)
        if owner is None:
            self.metrics.errors.labels("unauthorized").inc()
            found = "no key" if not keys else "a key that is not known here"
            detail = f"Found {found}, expected one in the header 'Authorization: Bearer KEY' or 'X-API-Key: KEY'."
            problem = make_problem(401, "unauthorized", detail)
            await render(scope["path"], problem, {"WWW-Authenticate": "Bearer"})(scope, receive, send)
            return
        scope.setdefault("state", {})["api_key"] = owner
        await self.app(scope, receive, send)


def presented_keys(headers: Headers) -> list[bytes]:
    """The keys as the bytes that were sent: Starlette decodes every header value as latin-1. Where a proxy needs
    `Authorization` for itself, the key is in the other header."""
    scheme, _, token = headers.get("authorization", "").partition(" ")
    bearer = token.strip() if scheme.lower() == "bearer" else ""
    return [key.encode("latin-1") for key in (bearer, headers.get("x-api-key", "").strip()) if key]
