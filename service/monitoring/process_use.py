"""What this process holds and uses: memory, processor time, bytes of requests."""

import time

from probity.service.environment.memory import resident_bytes
from probity.service.monitoring.metrics import Metrics


class ProcessUse:
    """The measurements of one process; with several, a scrape adds them up."""

    def __init__(self, metrics: Metrics, queue_rows: int, pending_bytes: int) -> None:
        """`queue_rows`: how many examples of one model may wait; `pending_bytes`: what requests may hold."""
        self._metrics, self._counted_seconds = metrics, 0.0
        metrics.queue_limit.set(queue_rows)
        metrics.pending_limit.set(pending_bytes)

    def measure(self, pending_bytes: int) -> None:
        """Set the gauges, and add the processor time since the last call; call this about every second."""
        self._metrics.pending_bytes.set(pending_bytes)
        self._metrics.memory_bytes.set(resident_bytes())
        seconds = time.process_time()
        self._metrics.cpu_seconds.inc(seconds - self._counted_seconds)
        self._counted_seconds = seconds
