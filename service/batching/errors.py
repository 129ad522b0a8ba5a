"""Why a request was not computed."""


class Unserved(Exception):
    """The request itself was fine; it was not computed."""


class QueueFull(Unserved):
    """No room: `rows` wait already, at most `limit` may. Try again after about `retry_after_seconds`."""

    def __init__(self, rows: int, limit: int, retry_after_seconds: float) -> None:
        self.rows, self.limit, self.retry_after_seconds = rows, limit, retry_after_seconds
        super().__init__(f"{rows} examples wait already, expected at most {limit}")


class DeadlineExceeded(Unserved):
    """The request's time was over before it was computed."""


class ClientDeadlineExceeded(DeadlineExceeded):
    """As `DeadlineExceeded`, and the time was the client's own choice, shorter than what the operator allows."""


class Closed(Unserved):
    """The model was unloaded, or the service shuts down."""


class BatcherFailed(Unserved):
    """The loop that forms batches has died: a bug. Nothing is computed any more."""
