"""What is rejected, what sets and intervals hold, and what a request may choose of it."""

from typing import Annotated, Any, Self

from pydantic import Field, field_validator, model_validator
from pydantic_settings import NoDecode

from probity.service.inference.policy import DecisionOptions, Rate


class DecisionSettings(DecisionOptions):
    """The options of a `Policy`, and the rates that requests may ask for."""

    requested_rates: Annotated[
        tuple[Rate, Rate] | None,
        NoDecode,
        Field(
            description="The lowest and highest `false_reject_rate` that a request may ask for, as `0.01,0.2`. None: a "
            "request may not choose."
        ),
    ] = None

    @field_validator("requested_rates", mode="before")
    @classmethod
    def two_rates(cls, value: Any) -> Any:
        """Refuse anything but two numbers in one line."""
        if isinstance(value, tuple | list):
            try:
                low, high = map(float, value)
            except (TypeError, ValueError):
                found = ",".join(map(str, value))
                raise ValueError(f"found {found!r:.100}, expected two rates, such as 0.01,0.2") from None
            return low, high
        return value

    @model_validator(mode="after")
    def check_rates(self) -> Self:
        """Refuse rates beside an accuracy, and rates in the wrong order."""
        if self.requested_rates is not None and self.accepted_accuracy is not None:
            found = f"accepted_accuracy: found {self.accepted_accuracy:g} and requested_rates too"
            raise ValueError(f"{found}, expected one of them: each decides which scores are accepted")
        if self.requested_rates is not None and self.requested_rates[0] > self.requested_rates[1]:
            low, high = self.requested_rates
            raise ValueError(f"requested_rates: found {low:g},{high:g}, expected the lower one first")
        return self
