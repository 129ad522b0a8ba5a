"""The false-reject rate that a request asks for: between the operator's bounds, and one that the model can keep."""

from dataclasses import dataclass

from probity.service.inference.deciding import Rule
from probity.service.settings import Settings


class RateError(ValueError):
    """A request asks for a rate that it cannot have."""

    def __init__(self, found: float, expected: str) -> None:
        self.found, self.expected = f"{found:g}", expected
        super().__init__(f"false_reject_rate: found {found:g}, expected {expected}")


@dataclass(frozen=True)
class RateBounds:
    """The operator's bounds; None: a request may not choose."""

    allowed: tuple[float, float] | None

    @classmethod
    def of(cls, settings: Settings) -> "RateBounds":
        return cls(settings.requested_rates)

    def rule(self, rule: Rule, rate: float | None) -> Rule:
        """The model's rule, at the rate that is asked for (None: its own); raises `RateError`."""
        if rate is None:
            return rule
        if self.allowed is None:
            raise RateError(
                rate, "none: this service sets the rate (PROBITY_REQUESTED_RATES would let requests choose)"
            )
        low, high = self.allowed
        if not low <= rate <= high:
            raise RateError(rate, f"{low:g} to {high:g}, as this service allows")
        if rate < rule.least_rate:
            count = round(1 / rule.least_rate) - 1
            raise RateError(rate, f"at least {rule.least_rate:.3g}: the model has {count} calibration scores")
        return rule.at(rate)
