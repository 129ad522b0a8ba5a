"""The client's errors, one class for each way to react."""

from ..schemas import Problem


class DemurError(Exception):
    """Any failure of a call. `retry_after`: the seconds after which the service asked for the next attempt."""

    retry_after: float | None = None


class RefusedError(DemurError):
    """The service refused the request. `problem` is its whole answer; the attributes are its fields.

    `status` is the HTTP status; `code` names the kind of refusal ("http": a proxy on the way refused); `detail` is for
    people. Where a value was wrong, `field`, `found` and `expected` say which, and how.
    """

    def __init__(self, problem: Problem, retry_after: float | None = None) -> None:
        super().__init__(problem, retry_after)  # the arguments, so that the error can be pickled
        self.problem, self.retry_after = problem, retry_after
        self.status, self.code, self.detail = problem.status, problem.code, problem.detail
        self.field, self.found, self.expected = problem.field, problem.found, problem.expected

    def __str__(self) -> str:
        return f"{self.status} {self.code}: {self.detail}"


class BadRequestError(RefusedError):
    """The request is wrong: correct it. Any 4xx without a class of its own."""


class UnauthorizedError(RefusedError):
    """No API key, or one that the service does not know: use another (401, 403)."""


class NotFoundError(RefusedError):
    """No such model or version; or the base URL is not that of the service (404)."""


class TooBusyError(RefusedError):
    """The queue is full: ask again after `retry_after` seconds, or ask another replica (429)."""


class UnavailableError(RefusedError):
    """Starting, shutting down, or not able to compute: ask another replica, or later (503)."""


class ServerError(RefusedError):
    """The service failed: tell its operator (any other 5xx)."""


class DeadlineError(RefusedError):
    """The deadline passed in the service: ask for less, or allow more time (504)."""


class ConnectionFailedError(DemurError):
    """No complete answer came: the service cannot be reached, or the connection broke. `__cause__` is the reason."""


class TimedOutError(ConnectionFailedError):
    """No complete answer came within the timeout: allow more time, or ask another replica."""


class UnexpectedAnswerError(DemurError):
    """The answer does not follow the API: the base URL is another service's, or the versions do not match."""

    def __init__(self, status: int | None, reason: str) -> None:
        super().__init__(status, reason)
        self.status, self.reason = status, reason

    def __str__(self) -> str:
        return f"an answer of another form (status {self.status or 'unknown'}): {self.reason}"


_CLASSES: dict[int, type[RefusedError]] = {
    401: UnauthorizedError,
    403: UnauthorizedError,
    404: NotFoundError,
    429: TooBusyError,
    503: UnavailableError,
    504: DeadlineError,
}


def refusal(problem: Problem, retry_after: float | None) -> RefusedError:
    """The error of the class for the problem's status, which is 400 or more."""
    fallback = BadRequestError if problem.status < 500 else ServerError
    return _CLASSES.get(problem.status, fallback)(problem, retry_after)
