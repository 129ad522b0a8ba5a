"""The part of a manifest that describes a cascade. `service/BUNDLE.md` is the normative text."""

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from service.format.manifest_parts import AtLeastOne, Calibration, MeasuredPrice, Positive, Prior, Share, Verification
from service.format.rules import Part, check_fields

Count = Annotated[int, Field(ge=0)]


@dataclass(frozen=True)
class CascadeAgreement(Part):
    """How often the stages of a cascade agree, on `examples` held-out examples that chose nothing.

    `decided`: how many of them the first stage decides; `agreement`: the share of these on which the full stage has the
    same verdict, null for none; `lower_bound`: what the true share is at least, with a confidence of 95 %.
    `verdicts_changed`: the share of all examples that one of cascade and full stage rejects, each by its own threshold;
    `log_likelihood_difference`: cascade less full stage, mean in nats. `shift_decided`, `shift_agreement`: the shares
    under synthetic shifts, null where there are none.
    """

    examples: AtLeastOne
    decided: Count
    agreement: Share | None
    lower_bound: Share
    verdicts_changed: Share
    log_likelihood_difference: float
    shift_decided: Share | None
    shift_agreement: Share | None

    def __post_init__(self) -> None:
        none = self.decided == 0
        check_fields(
            "cascade.agreement",
            self,
            ("decided", self.decided <= self.examples, f"at most {self.examples} examples"),
            ("agreement", (self.agreement is None) == none, "null where nothing is decided, else a number"),
            ("lower_bound", self.lower_bound <= (self.agreement or 0.0), "at most the agreement"),
        )

    @property
    def decided_share(self) -> float:
        """The share of the held-out examples that the first stage decides."""
        return self.decided / self.examples


@dataclass(frozen=True)
class Cascade(Part):
    """A cheaper first stage: a posterior over `size` weights of the linear head, with `prior`, that answers alone where
    its score is below `low` or above `high` (null: never above).

    `threshold`: where the band separates the verdicts of the full stage; `target`: the agreement that chose the band;
    `agreement`: what it turned out to be. `calibration`: the rule for the cascade as a whole. `row_numbers`, `price`,
    `verification`: of the first stage's graph, as those of `graph` and of the bundle.
    """

    size: AtLeastOne
    prior: Prior
    low: Annotated[float, Field(ge=0)]
    high: Positive | None
    threshold: Positive
    target: Share
    agreement: CascadeAgreement
    calibration: Calibration
    row_numbers: AtLeastOne
    price: tuple[MeasuredPrice, ...] | None
    verification: Verification | None

    def __post_init__(self) -> None:
        ordered = self.high is None or self.low <= self.high
        check_fields("cascade", self, ("low", ordered, f"at most high, {self.high}"))
