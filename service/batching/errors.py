"""Why a request was not computed."""

import asyncio

SLOW_SECONDS = 0.5  # of waiting, or of computing: the latency objective of the recording rules


class Unserved(Exception):
    """A sound request was not computed."""


class QueueFull(Unserved):
    """No room: `rows` wait already, at most `limit` may. Try again after about `retry_after_seconds`."""

    def __init__(self, rows: int, limit: int, retry_after_seconds: float) -> None:
        self.rows, self.limit, self.retry_after_seconds = rows, limit, retry_after_seconds
        super().__init__(f"{rows} examples wait already, expected at most {limit}")


class DeadlineExceeded(Unserved):
    """The request's deadline passed before it was computed.

    slow: whether the service was slow then, and would have kept the deadline had it been idle.
    """

    def __init__(self, message: str, *, slow: bool = False) -> None:
        super().__init__(message)
        self.slow = slow


class ClientDeadlineExceeded(DeadlineExceeded):
    """As `DeadlineExceeded`, with a deadline that the client chose, shorter than the operator's."""


class CancelledWhileSlow(asyncio.CancelledError):
    """The request was cancelled after it had waited longer than it should, which an idle service would have answered
    meanwhile."""


class Closed(Unserved):
    """The model was unloaded, or the service is shutting down."""


class BatcherFailed(Unserved):
    """The loop that forms batches has died of a bug. Nothing is computed any more."""
