"""Traces of requests: a span for each, and within it one for each step of a prediction."""

import asyncio
import time
from collections import defaultdict
from typing import Any

from opentelemetry.context import Context
from opentelemetry.trace import SpanKind, StatusCode, Tracer, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from ..format.text import printable
from .exchange import Exchange
from .middleware import METRICS_PATH, PUBLIC_PATHS

NOT_TRACED = PUBLIC_PATHS | {METRICS_PATH}  # what asks for them comes all the time
OF_A_TRACE = (b"traceparent", b"tracestate")
MOST_SHOWN = 300  # characters of a path


class _Times:
    """Turns seconds of `time.perf_counter` into nanoseconds since 1970, as spans have them."""

    def __init__(self, began: float) -> None:
        self.began, self._offset = began, time.time_ns() - time.perf_counter_ns()

    def ns(self, seconds: float) -> int:
        return round(seconds * 1e9) + self._offset


def trace(tracer: Tracer, exchange: Exchange) -> None:
    """Make the spans of an exchange that ends now, but of those for health and metrics. A trace that the client has
    begun goes on."""
    if exchange.path in NOT_TRACED:
        return
    end, route, method = time.perf_counter(), exchange.route, exchange.method
    times = _Times(end - (asyncio.get_running_loop().time() - exchange.arrived))
    span = tracer.start_span(
        method if route is None else f"{method} {route}",
        context=_parent(exchange),
        kind=SpanKind.SERVER,
        start_time=times.ns(times.began),
    )
    if span.is_recording():
        span.set_attributes(_attributes(exchange))
        within = set_span_in_context(span)
        for name, first, last in exchange.steps.spans(end):
            tracer.start_span(name, context=within, start_time=times.ns(first)).end(times.ns(last))
        if exchange.status >= 500:
            span.set_status(StatusCode.ERROR)
    span.end(times.ns(end))


def _parent(exchange: Exchange) -> Context:
    """What the client's headers say of the trace to which the request belongs; a malformed one begins a new trace."""
    headers = defaultdict[str, list[str]](list)
    for name, value in exchange.headers:
        if name in OF_A_TRACE:
            headers[name.decode("latin-1")].append(value.decode("latin-1"))
    return TraceContextTextMapPropagator().extract(headers)


def _attributes(exchange: Exchange) -> dict[str, Any]:
    """Those of OpenTelemetry's conventions for HTTP servers, and those of the prediction, as far as it came."""
    client, status, steps = exchange.client, exchange.status, exchange.steps
    model, answer = steps.model, steps.answer
    found = {
        "http.request.method": exchange.method,
        "http.route": exchange.route,
        "http.response.status_code": status,
        "error.type": str(status) if status >= 500 else None,
        "url.path": printable(exchange.path[:MOST_SHOWN]),
        "url.scheme": exchange.scheme,
        "network.protocol.version": exchange.version,
        "client.address": client[0] if client else None,
        "demur.request_id": exchange.identity,
        "demur.model": None if model is None else model.name,
        "demur.version": None if model is None else model.version,
        "demur.rows": steps.rows,
    }
    if answer is not None:
        found["demur.rejected"] = int(answer.result.rejected.sum())
    return {name: value for name, value in found.items() if value is not None}
