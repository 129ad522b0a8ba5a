"""ASGI middleware that traces requests: a span for each, and within it one for each step of a prediction."""

import asyncio
import time
from collections import defaultdict
from typing import Any

from opentelemetry.context import Context
from opentelemetry.trace import SpanKind, StatusCode, Tracer, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..format.text import printable
from ..inference.prediction import Prediction
from .arrival import arrived_at
from .errors import CLIENT_GONE
from .middleware import METRICS_PATH, PUBLIC_PATHS
from .request_id import current_id
from .steps import STEPS, Steps

NOT_TRACED = PUBLIC_PATHS | {METRICS_PATH}  # what asks for them comes all the time
OF_A_TRACE = (b"traceparent", b"tracestate")
MOST_SHOWN = 300  # characters of a path


class Traces:
    """Trace every request but those for health and metrics. A trace that the client has begun goes on.

    Put it within `RequestIds`, whose id the span names, and around everything that answers.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in NOT_TRACED:
            await self.app(scope, receive, send)
            return
        status = CLIENT_GONE
        waited = max(0.0, asyncio.get_running_loop().time() - arrived_at(scope))
        times = _Times(time.perf_counter() - waited)
        steps = scope[STEPS] = Steps()

        async def note_status(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self.app(scope, receive, note_status)
        except Exception:
            status = 500
            raise
        finally:
            _trace(scope["app"].state.runtime.tracing.tracer, scope, status, steps, times)


class _Times:
    """Turns seconds of `time.perf_counter` into nanoseconds since 1970, as spans have them."""

    def __init__(self, began: float) -> None:
        self.began, self._offset = began, time.time_ns() - time.perf_counter_ns()

    def ns(self, seconds: float) -> int:
        return round(seconds * 1e9) + self._offset


def _trace(tracer: Tracer, scope: Scope, status: int, steps: Steps, times: _Times) -> None:
    """Make the spans of a request that has ended."""
    end, route = time.perf_counter(), getattr(scope.get("route"), "path", None)
    method = scope["method"]
    span = tracer.start_span(
        method if route is None else f"{method} {route}",
        context=_parent(scope),
        kind=SpanKind.SERVER,
        start_time=times.ns(times.began),
    )
    if span.is_recording():
        span.set_attributes(_attributes(scope, route, status, steps))
        within = set_span_in_context(span)
        for name, first, last in steps.spans(end):
            tracer.start_span(name, context=within, start_time=times.ns(first)).end(times.ns(last))
        if status >= 500:
            span.set_status(StatusCode.ERROR)
    span.end(times.ns(end))


def _parent(scope: Scope) -> Context:
    """What the client's headers say of the trace to which the request belongs; a malformed one begins a new trace."""
    headers = defaultdict[str, list[str]](list)
    for name, value in scope["headers"]:
        if name in OF_A_TRACE:
            headers[name.decode("latin-1")].append(value.decode("latin-1"))
    return TraceContextTextMapPropagator().extract(headers)


def _attributes(scope: Scope, route: str | None, status: int, steps: Steps) -> dict[str, Any]:
    """Those of OpenTelemetry's conventions for HTTP servers, and those of the prediction, as far as it came."""
    client, model, answer = scope.get("client"), steps.model, steps.answer
    found = {
        "http.request.method": scope["method"],
        "http.route": route,
        "http.response.status_code": status,
        "error.type": str(status) if status >= 500 else None,
        "url.path": printable(scope["path"][:MOST_SHOWN]),
        "url.scheme": scope["scheme"],
        "network.protocol.version": scope["http_version"],
        "client.address": client[0] if client else None,
        "demur.request_id": current_id(),
        "demur.model": None if model is None else model.name,
        "demur.version": None if model is None else model.version,
        "demur.rows": steps.rows,
    }
    if answer is not None:
        found["demur.degraded"] = answer.degraded
        if isinstance(answer.result, Prediction):
            found["demur.rejected"] = int(answer.result.rejected.sum())
    return {name: value for name, value in found.items() if value is not None}
