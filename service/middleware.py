"""Plain ASGI around every request: streams and disconnects pass through untouched."""

import asyncio
import time

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.api_keys import KeyRing
from service.metrics import Metrics
from service.problems import make_problem, problem_response, render
from service.refusals import CLIENT_GONE

METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
SAFE_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}
# A JSON answer needs nothing; only pages made to be looked at bring scripts and styles with them.
NO_CONTENT_POLICY = "default-src 'none'; frame-ancestors 'none'"
# Exact paths: no spelling of another one begins like a public one.
PUBLIC = frozenset({"/health/live", "/health/ready", "/v2/health/live", "/v2/health/ready"})


class SafeHeaders:
    """Headers that keep browsers from guessing, framing and caching; while draining, connections are given up."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in SAFE_HEADERS.items():
                    headers.setdefault(name, value)
                if not headers.get("content-type", "").startswith("text/html"):
                    headers.setdefault("Content-Security-Policy", NO_CONTENT_POLICY)
                if scope["app"].state.runtime.draining:
                    headers["Connection"] = "close"
            await send(message)

        await self.app(scope, receive, with_headers)


class RequestMetrics:
    """Counts and times requests by route template, so that no client can invent labels."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self.app, self.metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started, status = time.perf_counter(), CLIENT_GONE

        async def note_status(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        self.metrics.in_flight.inc()
        try:
            await self.app(scope, receive, note_status)
        except asyncio.CancelledError:  # the time to finish after SIGTERM is over
            if status == CLIENT_GONE:
                refusal = make_problem(503, "draining", "The service shut down before the request was complete.")
                await problem_response(refusal)(scope, receive, note_status)
        except Exception:
            status = 500
            raise
        finally:
            self.metrics.in_flight.dec()
            route = getattr(scope.get("route"), "path", "unmatched")
            method = scope["method"] if scope["method"] in METHODS else "other"
            self.metrics.requests.labels(method, route, str(status)).inc()
            self.metrics.request_seconds.labels(route).observe(time.perf_counter() - started)


class ApiKeys:
    """Requests without a good key are answered 401; `Authorization: Bearer KEY` and `X-API-Key: KEY` are understood.

    Health is public, for those who watch over the service, and with `metrics_public` the metrics are. It belongs inside
    the CORS middleware, which answers a browser's preflight (it comes without a key) and lets pages see the 401. The
    key's name is in the scope's state as `api_key`.
    """

    def __init__(self, app: ASGIApp, keys: KeyRing, metrics: Metrics, metrics_public: bool) -> None:
        self.app, self.keys, self.metrics = app, keys, metrics
        self.public = PUBLIC | ({"/metrics"} if metrics_public else set())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in self.public:
            await self.app(scope, receive, send)
            return
        key = _presented(Headers(scope=scope))
        owner = self.keys.owner(key) if key else None
        if owner is None:
            self.metrics.errors.labels("unauthorized").inc()
            found = "no key" if not key else "a key that is not known here"
            detail = f"Found {found}, expected one in the header 'Authorization: Bearer KEY' or 'X-API-Key: KEY'."
            refusal = make_problem(401, "unauthorized", detail)
            await render(scope["path"], refusal, {"WWW-Authenticate": "Bearer"})(scope, receive, send)
            return
        scope.setdefault("state", {})["api_key"] = owner
        await self.app(scope, receive, send)


def _presented(headers: Headers) -> bytes:
    """The key as bytes, as they came: header values are latin-1 to Starlette, whatever they were."""
    scheme, _, token = headers.get("authorization", "").partition(" ")
    bearer = token.strip() if scheme.lower() == "bearer" else ""
    return (bearer or headers.get("x-api-key", "").strip()).encode("latin-1")
