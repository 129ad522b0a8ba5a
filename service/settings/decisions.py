"""What is rejected, what sets and intervals hold, and what a request may choose of it."""

import math
from typing import Annotated, Any, Self

from pydantic import Field, field_validator, model_validator
from pydantic_settings import NoDecode

from ..inference.policy import DecisionOptions, Rate


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
        """Refuse anything but two rates in one line, the lower one first."""
        if not isinstance(value, tuple | list):
            return value
        try:
            low, high = map(float, value)
        except (TypeError, ValueError):
            low = high = math.nan
        if not 0 < low <= high < 1:
            found = ",".join(map(str, value))
            expected = "expected two rates between 0 and 1, the lower one first, such as 0.01,0.2"
            raise ValueError(f"found {found!r:.100}, {expected}")
        return low, high

    @model_validator(mode="after")
    def check_rates(self) -> Self:
        """Refuse rates beside an accuracy."""
        if self.requested_rates is not None and self.accepted_accuracy is not None:
            found = f"accepted_accuracy: found {self.accepted_accuracy:g} and requested_rates too"
            raise ValueError(f"{found}, expected one of them: each decides which scores are accepted")
        return self
