"""How long a request may take: as the operator allows, or less where it says so itself."""

import contextlib
import math
from collections.abc import Iterator
from dataclasses import dataclass

from ..batching import ClientDeadlineExceeded, DeadlineExceeded
from .problems import ProblemError

HEADER = "X-Request-Timeout"


@dataclass(frozen=True)
class RequestDeadline:
    """When a request's time ends, on the event loop's clock: at `at`, and never after `latest`, which the operator's
    setting allows."""

    at: float
    latest: float

    @classmethod
    def of(cls, arrived: float, longest: float, asked: str | None) -> "RequestDeadline":
        """Counted from the arrival; `asked` is the header. Raises `ProblemError` (422) for one that is no number."""
        latest = arrived + longest
        return cls(latest if asked is None else min(latest, arrived + _seconds(asked)), latest)

    def sooner(self, at: float) -> "RequestDeadline":
        """The earlier one of this deadline and `at`."""
        return RequestDeadline(min(self.at, at), self.latest)

    @contextlib.contextmanager
    def attributed(self) -> Iterator[None]:
        """Turn `DeadlineExceeded` into `ClientDeadlineExceeded` where the client chose the deadline and the service was
        not slow: no client may cause an alert with a header, and none hides by its header that the service is slow."""
        try:
            yield
        except DeadlineExceeded as error:
            if self.at < self.latest and not error.slow:
                raise ClientDeadlineExceeded(f"{error}") from None
            raise


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < math.inf:
        found, expected = f"{text!r:.50}", "a number of seconds above 0, and finite"
        detail = f"{HEADER}: found {found}, expected {expected}."
        raise ProblemError(422, "field", detail, field=HEADER, found=found, expected=expected)
    return seconds
