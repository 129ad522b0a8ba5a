"""What is rejected, and what sets and intervals hold."""

from typing import Annotated, Literal, Self

from pydantic import BaseModel, Field, model_validator
from pydantic_settings import NoDecode

from probity.service.settings.types import Rate


class DecisionSettings(BaseModel):
    """What is rejected, and what sets and intervals hold."""

    false_reject_rate: Annotated[
        Rate | None,
        Field(
            description="Share of in-distribution inputs that may be rejected, for every model. None: the rate that "
            "each bundle was fitted with."
        ),
    ] = None
    requested_rates: Annotated[
        tuple[Rate, Rate] | None,
        NoDecode,
        Field(
            description="The lowest and highest `false_reject_rate` that a request may ask for, as `0.01,0.2`. None: a "
            "request may not choose."
        ),
    ] = None
    reject_by_class: Annotated[
        bool,
        Field(
            description="Whether the false-reject rate of a classification holds within each predicted class (classes "
            "with few held-out examples share a threshold), not only over all inputs."
        ),
    ] = False
    accepted_accuracy: Annotated[
        Rate | None,
        Field(
            description="Share of the accepted predictions that must be right, in place of a false-reject rate. The "
            "largest threshold is taken for which the held-out examples show it; a bundle that cannot show it is "
            "refused, with the number of examples that it lacks. None: no such demand."
        ),
    ] = None
    accepted_confidence: Annotated[
        Rate, Field(description="Confidence with which `PROBITY_ACCEPTED_ACCURACY` must be shown.")
    ] = 0.95
    interval_level: Annotated[
        float,
        Field(
            gt=0,
            lt=1,
            description="Probability that the interval in a regression response, or the prediction set in a "
            "classification response, holds the truth.",
        ),
    ] = 0.95
    intervals: Annotated[
        Literal["conformal", "gaussian"],
        Field(
            description="How wide intervals are: `conformal` as held-out residuals demand, or `gaussian` as the "
            "predictive distribution says. Bundles that keep no residuals, or too few for the level, give `gaussian`."
        ),
    ] = "conformal"

    @model_validator(mode="after")
    def check_rule(self) -> Self:
        """Refuse two demands where each would decide which scores are accepted, and rates in the wrong order."""
        if self.accepted_accuracy is not None:
            other = [name for name in ("false_reject_rate", "requested_rates") if getattr(self, name) is not None]
            other += ["reject_by_class"] if self.reject_by_class else []
            if other:
                found = f"accepted_accuracy: found {self.accepted_accuracy:g} and {other[0]} too"
                raise ValueError(f"{found}, expected one of them: each decides which scores are accepted")
        if self.requested_rates is not None and self.requested_rates[0] > self.requested_rates[1]:
            low, high = self.requested_rates
            raise ValueError(f"requested_rates: found {low:g},{high:g}, expected the lower one first")
        return self
