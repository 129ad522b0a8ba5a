"""An OpenTelemetry collector: takes spans by OTLP over HTTP, as the protocol's own messages have them."""

import contextlib
import threading
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.support.http_servers import Answering, answering

TIMEOUT = 60
FAILED = 2  # STATUS_CODE_ERROR of the protocol


@dataclass(frozen=True)
class Span:
    """One span, its ids as hexadecimal digits; `resource`: what sent it."""

    name: str
    trace: str
    span: str
    parent: str
    kind: int
    start: int
    end: int
    failed: bool
    attributes: dict[str, Any]
    resource: dict[str, Any]


class Collector:
    """What has arrived at `url`."""

    def __init__(self) -> None:
        self.url, self.spans, self.headers = "", list[Span](), list[dict[str, str]]()
        self._changed = threading.Condition()

    def add(self, body: bytes, headers: dict[str, str]) -> None:
        found = [
            _span(span, _values(resource_spans.resource.attributes))
            for resource_spans in ExportTraceServiceRequest.FromString(body).resource_spans
            for scope_spans in resource_spans.scope_spans
            for span in scope_spans.spans
        ]
        with self._changed:
            self.spans += found
            self.headers.append(headers)
            self._changed.notify_all()

    def wait_for(self, number: int, wanted: Callable[[Span], bool] = lambda _: True) -> list[Span]:
        """The spans that are wanted, once there are so many."""

        def found() -> list[Span]:
            return [span for span in self.spans if wanted(span)]

        with self._changed:
            assert self._changed.wait_for(lambda: len(found()) >= number, TIMEOUT), self.spans
            return found()


def _span(span: Any, resource: dict[str, Any]) -> Span:
    return Span(
        name=span.name,
        trace=span.trace_id.hex(),
        span=span.span_id.hex(),
        parent=span.parent_span_id.hex(),
        kind=span.kind,
        start=span.start_time_unix_nano,
        end=span.end_time_unix_nano,
        failed=span.status.code == FAILED,
        attributes=_values(span.attributes),
        resource=resource,
    )


def _values(attributes: Any) -> dict[str, Any]:
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in attributes}


@contextlib.contextmanager
def collecting(monkeypatch: pytest.MonkeyPatch, **variables: str) -> Iterator[Collector]:
    """A collector, to which services that start from here on send their spans soon. variables: OpenTelemetry's,
    without `OTEL_`."""
    collector = Collector()

    class Receive(Answering):
        def do_POST(self) -> None:
            body = self.body()
            if self.headers.get("Content-Encoding") == "gzip":
                body = zlib.decompress(body, wbits=31)
            assert self.path == "/v1/traces"
            collector.add(body, dict(self.headers))
            self.answer(200, headers={"Content-Type": "application/x-protobuf"})

    with answering(Receive) as url:
        collector.url = url
        given = {"EXPORTER_OTLP_ENDPOINT": url, "BSP_SCHEDULE_DELAY": "20"}
        for name, value in (given | variables).items():
            monkeypatch.setenv(f"OTEL_{name}", value)
        yield collector
