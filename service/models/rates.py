"""The false-reject rate that a request asks for: between the operator's bounds, and one that the model can keep."""

from dataclasses import dataclass

from ..inference.decision import Decision
from ..settings import Settings


class RateError(ValueError):
    """A request asks for a rate that it cannot have."""

    def __init__(self, found: float, expected: str) -> None:
        self.field, self.found, self.expected = "false_reject_rate", f"{found:g}", expected
        super().__init__(f"{self.field}: found {found:g}, expected {expected}")


@dataclass(frozen=True)
class RateBounds:
    """The operator's bounds; None: a request may not choose."""

    allowed: tuple[float, float] | None

    @classmethod
    def of(cls, settings: Settings) -> "RateBounds":
        return cls(settings.requested_rates)

    def decision(self, own: Decision, rate: float | None) -> Decision:
        """The model's decision, at the rate that is asked for (None: its own); raises `RateError`."""
        if rate is None:
            return own
        if self.allowed is None:
            raise RateError(rate, "none: this service sets the rate (DEMUR_REQUESTED_RATES would let requests choose)")
        low, high = self.allowed
        if not low <= rate <= high:
            raise RateError(rate, f"{low:g} to {high:g}, as this service allows")
        least = own.rule.least_rate
        if rate < least:
            raise RateError(rate, f"at least {least:.3g}: the model has {round(1 / least) - 1} calibration scores")
        return own.at(rate)
