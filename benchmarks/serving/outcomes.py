"""How a request ended: an HTTP status, or one of these."""

from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
NO_ANSWER, CONNECT, LOST, TIMEOUT, VANISHED = -1, -2, -3, -4, -5
NAMES = {
    NO_ANSWER: "unanswered",
    CONNECT: "not connected",
    LOST: "connection lost after sending",
    TIMEOUT: "no answer in time",
    VANISHED: "left by the client, as planned",
}
OK = 200
REFUSED = (429, 504)  # what a service under too much load is meant to say


@dataclass(frozen=True)
class Outcomes:
    """Columns, one entry a request: moments `due`, `sent` and `done` (monotonic seconds), `status` (an HTTP status, or
    one of the names above) and `kind` (position in the plan); `generator_cores`: how busy the generator was."""

    start: float
    due: Array
    sent: Array
    done: Array
    status: Array
    kind: Array
    generator_cores: float

    def latencies(self, kinds: set[int] | None = None) -> Array:
        """Seconds from the due moment to the end of each answer with status 200."""
        chosen = self.status == OK
        if kinds is not None:
            chosen &= np.isin(self.kind, sorted(kinds))
        seconds: Array = (self.done - self.due)[chosen]
        return seconds

    def counts(self, kinds: set[int] | None = None) -> dict[str, int]:
        """How often each outcome was seen, by its name."""
        chosen = self.status if kinds is None else self.status[np.isin(self.kind, sorted(kinds))]
        found = Counter(int(status) for status in chosen)
        return {NAMES.get(status, str(status)): found[status] for status in sorted(found, reverse=True)}

    def as_json(self) -> dict[str, Any]:
        """generator_lateness: how long after its moment a request was sent, by the generator's fault or that of a full
        connection pool."""
        return {
            "requests": len(self.due),
            "seconds": float(self.due[-1] - self.start),
            "outcomes": self.counts(),
            "latency": percentiles(self.latencies()),
            "generator_lateness": percentiles((self.sent - self.due)[self.sent > 0]),
            "generator_cores": self.generator_cores,
        }


def percentiles(values: Array) -> dict[str, float]:
    """Median and tail in seconds; NaN-free: nothing where there are no values."""
    if not len(values):
        return {}
    levels = {"p50": 50, "p95": 95, "p99": 99, "most": 100}
    return {name: float(np.percentile(values, level)) for name, level in levels.items()}
