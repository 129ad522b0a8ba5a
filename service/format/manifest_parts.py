"""The parts of a manifest but its input: frozen dataclasses that check themselves. Pure standard library.

`service.format.manifest` puts them together; `service/BUNDLE.md` is the normative text.
"""

import math
from dataclasses import dataclass, field
from typing import Any, Literal

from service.format.manifest_json import ManifestError, added_in, check_fields


@dataclass(frozen=True)
class ParameterSlice:
    """One trainable tensor: where its entries stand in the flattened weights, and how many were chosen."""

    name: str
    shape: tuple[int, ...]
    offset: int
    chosen: int


@dataclass(frozen=True)
class Candidate:
    """One subnetwork that the strategy `auto` tried, and how it did.

    `size` weights, `forward_passes` what one prediction costs, `prior_precision` lambda within the budget;
    `log_likelihood` (mean, nats) on held-out data, `shift_log_likelihood` and `shift_auroc` on synthetic shifts of it.
    """

    name: str
    size: int
    forward_passes: float
    prior_precision: float
    log_likelihood: float
    shift_log_likelihood: float
    shift_auroc: float
    chosen: bool

    def __post_init__(self) -> None:
        check_fields(
            "selection.candidates",
            self,
            ("size", self.size >= 1, "at least 1"),
            ("forward_passes", 0 < self.forward_passes < math.inf, "a positive number"),
            ("prior_precision", 0 < self.prior_precision < math.inf, "a positive number"),
            ("log_likelihood", math.isfinite(self.log_likelihood), "a finite number"),
            ("shift_log_likelihood", math.isfinite(self.shift_log_likelihood), "a finite number"),
            ("shift_auroc", 0 <= self.shift_auroc <= 1, "a number from 0 to 1"),
        )


@dataclass(frozen=True)
class Selection:
    """How the subnetwork was chosen. `dead_weights` counts weights without curvature that were left out.

    `explanation`: one sentence on why, and `candidates`: what was compared, both where the strategy compares any.
    `kinds` ("weights": without biases and normalisation) and `within` (modules; None: all) say what was open to choice.
    """

    strategy: str
    options: dict[str, Any]
    seed: int
    dead_weights: int | None
    parameters: tuple[ParameterSlice, ...]
    explanation: str | None = field(default=None, metadata=added_in(1))
    candidates: tuple[Candidate, ...] | None = field(default=None, metadata=added_in(1))
    kinds: Literal["all", "weights"] = field(default="all", metadata=added_in(1))
    within: tuple[str, ...] | None = field(default=None, metadata=added_in(1))

    def __post_init__(self) -> None:
        if self.candidates is not None and (found := sum(c.chosen for c in self.candidates)) != 1:
            raise ManifestError(f"selection.candidates: found {found} that are chosen, expected exactly 1")


@dataclass(frozen=True)
class Tried:
    """A search for the prior precision: lambda and what each value was worth, (G,) all.

    `log_likelihood` (mean, nats, on held-out data) and `log_evidence` where they were computed;
    `plain_log_likelihood` is that of the network without weight uncertainty.
    """

    precisions: tuple[float, ...]
    log_likelihood: tuple[float, ...] | None
    log_evidence: tuple[float, ...] | None
    plain_log_likelihood: float | None

    def __post_init__(self) -> None:
        count, plain = len(self.precisions), self.plain_log_likelihood
        check_fields(
            "prior.tried",
            self,
            ("precisions", count > 0 and all(0 < p < math.inf for p in self.precisions), "positive numbers"),
            ("log_likelihood", _fits(self.log_likelihood, count), f"null or {count} finite numbers"),
            ("log_evidence", _fits(self.log_evidence, count), f"null or {count} finite numbers"),
            ("plain_log_likelihood", plain is None or math.isfinite(plain), "null or a finite number"),
        )


def _fits(values: tuple[float, ...] | None, count: int) -> bool:
    return values is None or (len(values) == count and all(map(math.isfinite, values)))


@dataclass(frozen=True)
class Prior:
    """Prior precision: `precision` is lambda, `used` is lambda_S that stands in the posterior precision.

    `budget`: what the uncertainty may cost on held-out data, in nats, where that decided; `tried`: the search.
    """

    method: Literal["fixed", "gridsearch", "marglik", "budget"]
    precision: float
    scaling: Literal["subnetwork", "none"]
    used: float
    budget: float | None = field(default=None, metadata=added_in(1))
    tried: Tried | None = field(default=None, metadata=added_in(1))

    def __post_init__(self) -> None:
        budget, decides = self.budget, self.method == "budget"
        expected = "0 or a positive number" if decides else "null"
        sound = (budget is not None and 0 <= budget < math.inf) if decides else budget is None
        check_fields("prior", self, ("budget", sound, f"{expected} for method {self.method!r}"))


@dataclass(frozen=True)
class Posterior:
    """How the posterior is written down.

    "cholesky": the factor; `jitter` is what had to be added to the diagonal before it could be factored (0: nothing).
    "low-rank": the `rank` largest eigenpairs of the curvature and the prior for the rest. `tolerance` is the relative
    error of the functional variance that was asked for, `error` the largest one reached on held-out data, against the
    full posterior.
    """

    kind: Literal["cholesky", "low-rank"]
    size: int
    jitter: float
    rank: int | None = field(default=None, metadata=added_in(1))
    tolerance: float | None = field(default=None, metadata=added_in(1))
    error: float | None = field(default=None, metadata=added_in(1))

    def __post_init__(self) -> None:
        rank, tolerance, error = self.rank, self.tolerance, self.error
        if self.kind == "cholesky":
            rules = [(name, getattr(self, name) is None, "null") for name in ("rank", "tolerance", "error")]
        elif rank is None or tolerance is None or error is None:
            rules = [(name, getattr(self, name) is not None, "a number") for name in ("rank", "tolerance", "error")]
        else:
            rules = [
                ("rank", 1 <= rank <= self.size, f"a number from 1 to {self.size}"),
                ("tolerance", 0 <= tolerance < math.inf, "0 or a positive number"),
                ("error", 0 <= error <= tolerance, f"a number from 0 to the tolerance, {tolerance}"),
                ("jitter", self.jitter == 0, "0, since nothing is factored"),
            ]
        check_fields("posterior", self, *((name, holds, f"{e} for kind {self.kind!r}") for name, holds, e in rules))


@dataclass(frozen=True)
class Calibration:
    """The rejection rule. `threshold` is the largest score still accepted."""

    score: Literal["predictive_entropy", "epistemic_std"]
    examples: int
    false_reject_rate: float
    threshold: float


@dataclass(frozen=True)
class Verification:
    """Largest relative errors of the serving code against torch in float64, on `examples` inputs."""

    examples: int
    tolerance: float
    mean_error: float
    jacobian_error: float
    variance_error: float


@dataclass(frozen=True)
class FileEntry:
    """Size and SHA-256 (hexadecimal) of one file of the bundle."""

    sha256: str
    bytes: int
