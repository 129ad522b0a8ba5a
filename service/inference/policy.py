"""What an operator asks of decisions, sets and intervals: five options, of a service as of the command line."""

from typing import TYPE_CHECKING, Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from ..format.validation import in_one_line

Rate = Annotated[float, Field(gt=0, lt=1)]


class DecisionOptions(BaseModel):
    """What is rejected, and what sets and intervals hold."""

    false_reject_rate: Annotated[
        Rate | None,
        Field(
            description="Share of in-distribution inputs that may be rejected, for every model. None: the rate that "
            "each bundle was fitted with."
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
            "largest threshold is taken for which the held-out examples show it, with 95 % confidence; a bundle that "
            "cannot show it is refused, with the number of examples that it lacks. None: no such demand."
        ),
    ] = None
    interval_level: Annotated[
        Rate,
        Field(
            description="Probability that the interval in a regression response, or the prediction set in a "
            "classification response, holds the truth.",
        ),
    ] = 0.95
    sets_by_class: Annotated[
        bool,
        Field(
            description="Whether the prediction sets of a classification hold each true class with that probability, "
            "not only all inputs together. A class with too few held-out examples is then in every set."
        ),
    ] = False

    @model_validator(mode="after")
    def one_demand(self) -> Self:
        """Refuse two demands where each would decide which scores are accepted."""
        if self.accepted_accuracy is not None:
            others = {"false_reject_rate": self.false_reject_rate, "reject_by_class": self.reject_by_class or None}
            for name, other in others.items():
                if other is not None:
                    found = f"accepted_accuracy: found {self.accepted_accuracy:g} and {name} too"
                    raise ValueError(f"{found}, expected one of them: each decides which scores are accepted")
        return self


class Policy(DecisionOptions):
    """The five options of a `Predictor`. Raises `ValueError` for values that are none, and for two that contradict."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    if not TYPE_CHECKING:  # who checks types sees the fields

        def __init__(self, **options: Any) -> None:
            try:
                super().__init__(**options)
            except ValidationError as error:
                raise ValueError(in_one_line(error, Policy.model_fields)) from None

    @classmethod
    def of(cls, options: DecisionOptions) -> "Policy":
        """These options, of the settings of a service."""
        return cls(**{name: getattr(options, name) for name in cls.model_fields})
