"""The parts of a manifest other than its input. `demur.service.format.manifest` combines them.

A bound in a field's annotation is checked when a manifest is read or written, one in `__post_init__` always.
`service/BUNDLE.md` is the normative text.
"""

import math
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from ..maths.rejection import rate_range
from ..maths.score_distribution import LEAST_SCALE
from ..maths.scores import FeatureScoreName, ScoreName, SingleScoreName
from .rules import Part, check_fields

AtLeastOne = Annotated[int, Field(ge=1)]
Positive = Annotated[float, Field(gt=0)]
Share = Annotated[float, Field(ge=0, le=1)]


@dataclass(frozen=True)
class ParameterSlice(Part):
    """One trainable tensor: where its entries stand in the flattened weights, and how many were chosen."""

    name: str
    shape: tuple[int, ...]
    offset: int
    chosen: int


@dataclass(frozen=True)
class Selection(Part):
    """How the subnetwork was chosen. `dead_weights` counts weights without curvature that were left out.

    `explanation`: one sentence on why, where the options alone do not tell.
    `within` (modules; None: all) says what was open to choice.
    """

    strategy: str
    options: dict[str, Any]
    seed: int
    dead_weights: int | None
    parameters: tuple[ParameterSlice, ...]
    explanation: str | None = None
    within: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Tried(Part):
    """A search for the prior precision: lambda and what each value was worth, (G,) all.

    `log_likelihood` (mean, nats, on held-out data) and `log_evidence` where they were computed;
    `plain_log_likelihood` is that of the network without weight uncertainty.
    """

    precisions: Annotated[tuple[Positive, ...], Field(min_length=1)]
    log_likelihood: tuple[float, ...] | None
    log_evidence: tuple[float, ...] | None
    plain_log_likelihood: float | None

    def __post_init__(self) -> None:
        count = len(self.precisions)
        check_fields(
            "prior.tried",
            self,
            *(
                (name, values is None or len(values) == count, f"null or {count} finite numbers")
                for name, values in (("log_likelihood", self.log_likelihood), ("log_evidence", self.log_evidence))
            ),
        )


@dataclass(frozen=True)
class Prior(Part):
    """Prior precision: `precision` is lambda, `used` is lambda_S that stands in the posterior precision.

    `budget`: what the uncertainty may cost on held-out data, in nats, where that decided; `tried`: the search.
    """

    method: Literal["fixed", "gridsearch", "marglik", "budget"]
    precision: Positive
    used: Positive
    budget: float | None = None
    tried: Tried | None = None

    def __post_init__(self) -> None:
        budget, decides = self.budget, self.method == "budget"
        sound = (budget is not None and budget >= 0) if decides else budget is None
        expected = "0 or a positive number" if decides else "null"
        check_fields("prior", self, ("budget", sound, f"{expected} for method {self.method!r}"))


@dataclass(frozen=True)
class Gate(Part):
    """What makes the variances of the chosen weights, v_S,k, and of the added ones, a, those of the outputs:

        w_k = s v_S,k + a r_k^2,   u = mean_k w_k / r_k^2,   v_k = (1 - t / max(u, t)) w_k,

    s `subnetwork_scale`, 0 where the graph leaves that part out, t `threshold`; r_k = 1 but of a regression with a
    noise for each output.
    """

    subnetwork_scale: Annotated[float, Field(ge=0)]
    threshold: Positive


@dataclass(frozen=True)
class InputNoise(Part):
    """Noise of a regression that depends on the input: the graph gives `noise_scale`, by which `sigma_noise` is
    multiplied, between `least` and `most`. `gain`: in log-likelihood of a held-out example that was left out of the
    fit, in nats, and `gain_error` its standard error."""

    least: Positive
    most: Positive
    gain: Positive
    gain_error: Annotated[float, Field(ge=0)]


@dataclass(frozen=True)
class AddedWeights(Part):
    """The posterior over weights that the network did not have, the last of which are zero: their variance is part of
    each output's.

    `layers`: whose inputs the variance of the outputs is made of, `distance_layers` those of the score `distance`; ""
    stands for the network's inputs, "." for their texture. `features`: how many random features the former has.
    `prior_variance`: that of an output far from all training examples. `gate`: what inputs that are no more unusual
    than most held-out ones are spared by; bundles of before have none. `cost`: the held-out log-likelihood of an
    example, in nats, that the uncertainty takes from the best without any, and `cost_error` its standard error;
    `budget`: what both together may be. `explanation`: the choice in one sentence. `noise`: null where it is the same
    for every input.
    """

    left_out: ClassVar[frozenset[str]] = frozenset({"gate", "noise"})

    layers: Annotated[tuple[str, ...], Field(min_length=1)]
    distance_layers: Annotated[tuple[str, ...], Field(min_length=1)]
    features: AtLeastOne
    prior_variance: Positive
    budget: Positive
    cost: float
    cost_error: Annotated[float, Field(ge=0)]
    explanation: str
    gate: Gate | None = None
    noise: InputNoise | None = None


@dataclass(frozen=True)
class Posterior(Part):
    """How the posterior is written down: as the Cholesky factor of its covariance, over `size` weights.

    `jitter` is what had to be added to the diagonal of the precision before it could be factored (0: nothing).
    """

    kind: Literal["cholesky"]
    size: int
    jitter: Annotated[float, Field(ge=0)]


@dataclass(frozen=True)
class Graph(Part):
    """What the ONNX graph gives, and what that takes.

    `row_numbers`: how many numbers the variances take in memory at most for one example. `feature_scores`:
    which scores of the network's activations it gives, in the order of the columns; null: none.
    """

    retired: ClassVar[frozenset[str]] = frozenset({"computed", "reduced"})

    row_numbers: AtLeastOne
    feature_scores: tuple[FeatureScoreName, ...] | None = None

    def __post_init__(self) -> None:
        names = self.feature_scores
        sound = names is None or (bool(names) and len(set(names)) == len(names))
        check_fields("graph", self, ("feature_scores", sound, "null or different names"))


@dataclass(frozen=True)
class SetScore(Part):
    """How a class scores for prediction sets: the probability of the classes down to it, and `penalty` for each rank
    below the first `unpenalised` ones."""

    penalty: Annotated[float, Field(ge=0)]
    unpenalised: AtLeastOne


@dataclass(frozen=True)
class Outcomes(Part):
    """How the held-out examples turned out, by which a service states guarantees; `calibration.safetensors` has them.

    `tuning_examples`: how many are kept that did not set the threshold; `set_score`: for a classification, else null.
    """

    tuning_examples: Annotated[int, Field(ge=0)]
    set_score: SetScore | None


@dataclass(frozen=True)
class ScorePart(Part):
    """A score of which another is made: scale and shape of the tail of its distribution, the surprise from which on it
    counts, and the end that far inputs bring it near to, in whose odds it counts."""

    retired: ClassVar[frozenset[str]] = frozenset({"weight"})
    left_out: ClassVar[frozenset[str]] = frozenset({"end"})

    name: SingleScoreName
    scale: Annotated[float, Field(ge=LEAST_SCALE)]
    shape: Annotated[float, Field(ge=0, lt=1)] = 0.0
    least: Annotated[float, Field(ge=0)] = 0.0
    end: Positive | None = None

    @property
    def least_level(self) -> float:
        """The level of the quantile from which on it counts."""
        return -math.expm1(-self.least)


@dataclass(frozen=True)
class Calibration(Part):
    """The rejection rule. `threshold` is the largest score still accepted.

    `examples`: those that tuned nothing. `scored`: how many scores set the threshold, where that is more: of a
    regression whose score needs no tuning. `parts`: what the score is made of, null for a single one.
    """

    retired: ClassVar[frozenset[str]] = frozenset({"compared"})
    left_out: ClassVar[frozenset[str]] = frozenset({"scored"})

    score: ScoreName
    examples: AtLeastOne
    false_reject_rate: Annotated[float, Field(gt=0, lt=1)]
    threshold: float
    outcomes: Outcomes
    parts: tuple[ScorePart, ...] | None = None
    scored: AtLeastOne | None = None

    @property
    def scores(self) -> int:
        """How many set the threshold."""
        return self.scored or self.examples

    @property
    def expected(self) -> str:
        """What the false-reject rate comes out at, for people."""
        low, high = (f"{100 * share:.2g} %" for share in rate_range(self.scores, self.false_reject_rate))
        return (
            f"a rate of {100 * self.false_reject_rate:g} % that is set by {self.scores:,} examples comes out between "
            f"{low} and {high}, nine times in ten"
        )

    def __post_init__(self) -> None:
        parts = self.parts or ()
        names = [part.name for part in parts]
        described = bool(names) == (self.score == "surprise") and self.parts != ()
        counting = not parts or any(part.least == 0 for part in parts)
        check_fields(
            "calibration",
            self,
            ("parts", described, "what 'surprise' is made of, null for any other score"),
            ("parts", len(set(names)) == len(names), "names that differ"),
            ("parts", counting, "one that counts from 0 on"),
        )


@dataclass(frozen=True)
class RejectedShare(Part):
    """Which share the bundle rejects of `examples` inputs of a kind that is obviously foreign."""

    name: Annotated[str, Field(min_length=1, max_length=100)]
    share: Share
    examples: AtLeastOne


@dataclass(frozen=True)
class Verification(Part):
    """Largest relative errors of the serving code against torch in float64, on `examples` inputs.

    The last two are null where there are no added weights, and so is `noise_scale_error` where the graph gives none.
    """

    left_out: ClassVar[frozenset[str]] = frozenset({"noise_scale_error"})

    examples: int
    tolerance: float
    mean_error: float
    variance_error: float
    added_variance_error: float | None = None
    feature_scores_error: float | None = None
    noise_scale_error: float | None = None

    @property
    def errors(self) -> dict[str, float]:
        """Those that were measured, by name."""
        found: dict[str, float | None] = {"mean": self.mean_error, "variance": self.variance_error}
        found |= {"added variance": self.added_variance_error, "feature scores": self.feature_scores_error}
        found["noise scale"] = self.noise_scale_error
        return {name: error for name, error in found.items() if error is not None}


@dataclass(frozen=True)
class FileEntry(Part):
    """Size and SHA-256 (hexadecimal) of one file of the bundle."""

    sha256: str
    bytes: int
