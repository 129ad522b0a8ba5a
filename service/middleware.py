"""Plain ASGI around every request: streams and disconnects pass through untouched."""

import asyncio
import time

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.metrics import Metrics
from service.problems import make_problem, problem_response
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
