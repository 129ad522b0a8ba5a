"""The service's OpenTelemetry tracer, whose spans go to a collector by OTLP over HTTP."""

import asyncio
import contextlib
import logging
import threading
from collections.abc import Sequence

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExportResult
from prometheus_client import CollectorRegistry, Counter

log = logging.getLogger("demur")


class Tracing:
    """A tracer with a provider of its own: nothing of it is global. Spans that a collector does not take in time are
    lost, and delay no request: how many were made and how many taken is counted.

    OpenTelemetry's variables say where spans go, which requests are traced and what the service is called:
    https://opentelemetry.io/docs/specs/otel/configuration/sdk-environment-variables/
    """

    def __init__(self, version: str, made: Counter, sent: Counter) -> None:
        """version: the service's. Starts a thread, which sends the spans."""
        named = Resource.create({"service.name": "demur", "service.version": version})
        self._provider = TracerProvider(resource=named.merge(OTELResourceDetector().detect()), shutdown_on_exit=False)
        self._provider.add_span_processor(_CountingProcessor(_CountingExporter(sent), made))
        self.tracer = self._provider.get_tracer("demur", version)

    @classmethod
    def check(cls, version: str) -> None:
        """Raises `ValueError` where a variable of OpenTelemetry has a value that it refuses."""
        nowhere = CollectorRegistry()
        try:
            tracing = cls(version, *(Counter(name, name, registry=nowhere) for name in ("made", "sent")))
        except ValueError as error:
            raise ValueError(f"found variables OTEL_... that OpenTelemetry refuses: {error}") from None
        tracing._provider.shutdown()

    async def close(self, seconds: float) -> None:
        """Send what is left, within `seconds`: a collector that does not answer keeps nobody from the end."""
        loop, closed = asyncio.get_running_loop(), asyncio.Event()

        def close() -> None:
            self._provider.shutdown()
            with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile
                loop.call_soon_threadsafe(closed.set)

        threading.Thread(target=close, name="demur-traces", daemon=True).start()
        try:
            async with asyncio.timeout(seconds):
                await closed.wait()
        except TimeoutError:
            log.warning("The last traces were not sent: the collector did not take them within %g s", seconds)


class _CountingProcessor(BatchSpanProcessor):
    """Counts the spans that are to be sent."""

    def __init__(self, exporter: OTLPSpanExporter, made: Counter) -> None:
        super().__init__(exporter)
        self._made = made

    def on_end(self, span: ReadableSpan) -> None:
        self._made.inc()
        super().on_end(span)


class _CountingExporter(OTLPSpanExporter):
    """Counts the spans that the collector took."""

    def __init__(self, sent: Counter) -> None:
        super().__init__()
        self._sent = sent

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        result = super().export(spans)
        if result is SpanExportResult.SUCCESS:
            self._sent.inc(len(spans))
        return result
