"""Verify a new bundle: the serving code against plain torch in float64; a bundle that is too far off is refused."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from demur.service.bundle import Verification
from demur.service.inference.predictor import Predictor

from ..runtime.arrays import Array

TOLERANCE = 1e-4
# Relative to the largest entry of the batch: below this share a variance is compared absolutely, since an output
# that a batch hardly moves has no digits left in float32.
SMALL_SHARE = 1e-6
# Near the training data the variance of added weights is a difference of two numbers near the prior's, so below this
# share of the prior's its error is measured against that share.
ADDED_SHARE = 1e-2
# A distance is such a difference, too, of prior variance 1, and float32 adds up its 256 squares to 1e-5: relative to
# the largest distance of a few examples near the training data that could be much.
# A likeness to a mistake is a difference of nats: a thousandth of one, the tolerance of ten, decides nothing, nor does
# anything where it is ten below the 0 from which on it counts.
DISTANCE_SHARE, LIKENESS_SHARE = 0.1, 10.0
# In a network of millions of ReLUs some inputs lie so near to zero that float32 puts them on the other side, and a
# derivative jumps. Torch's own derivatives jump then too, so no more than a few times their distance is asked for.
ROUNDING_FACTOR, LOOSEST = 5.0, 1e-2


class VerificationError(RuntimeError):
    """The bundle's answers differ from torch's by more than the tolerance; nothing was published."""


@dataclass(frozen=True)
class Truth:
    """Plain torch in this precision: inputs as the service takes them, mean (n, K), and variance (n, K).
    added_variance (n,), feature_scores (n, M), noise_scale (n, K): where the graph gives any; the former is part of the
    variance. unit (K,): of the means, in which outputs are compared with each other, and its square of the variances.
    least: smaller variances count as these, by name, in squares of the unit: the gate makes most of them zero."""

    inputs: Array
    mean: Array
    variance: Array
    precision: str = "float64"
    added_variance: Array | None = None
    feature_scores: Array | None = None
    noise_scale: Array | None = None
    unit: Array = field(default_factory=lambda: np.ones(1))
    least: Mapping[str, Array] = field(default_factory=dict)

    def errors(self, found: Mapping[str, Array]) -> dict[str, float]:
        """Relative errors of other values for the same inputs, by name."""
        return {name: self._error(name, values) for name, values in found.items()}

    def _error(self, name: str, values: Array) -> float:
        if name == "feature_scores" and self.feature_scores is not None:  # each in a unit of its own
            shares = np.array([DISTANCE_SHARE, *[LIKENESS_SHARE] * (values.shape[1] - 1)])
            expected, served = (np.maximum(each, -shares) for each in (self.feature_scores, values))
            scale = np.maximum(np.abs(self.feature_scores).max(axis=0), shares)
            return float((np.abs(served - expected) / scale).max())
        unit = {"mean": self.unit, "variance": self.unit**2}.get(name, np.ones(1))
        least, absolute = self.least.get(name, 0.0), not name.endswith("variance")
        return relative_error(values / unit, getattr(self, name) / unit, absolute=absolute, least=least)


Rounding = Callable[[], Mapping[str, float]]


def verify(folder: Path, truth: Truth, rounding: Rounding = lambda: {}, tolerance: float = TOLERANCE) -> Verification:
    """Load the bundle as the service does and compare; raises `VerificationError` above `tolerance`.

    `rounding` gives the errors that rounding alone makes in plain torch, and is asked only where the tolerance is
    missed: then five times those are allowed, at most 1e-2.

    Every example is predicted in one batch and alone, so that a batch dimension that was fixed by the export, or a
    network that mixes examples, shows here.
    """
    predictor = Predictor.load(folder)
    batches = [truth.inputs, *(truth.inputs[i : i + 1] for i in range(len(truth.inputs)))]
    joint, *single = [_answers(predictor, batch) for batch in batches]
    alone = {name: np.concatenate([answers[name] for answers in single]) for name in joint}
    for answers in (joint, alone):
        _check_finite(answers, truth)
    attempts = [truth.errors(joint), truth.errors(alone)]
    errors = {name: max(one[name] for one in attempts) for name in attempts[0]}
    allowed = dict.fromkeys(errors, tolerance)
    if not all(error <= tolerance for error in errors.values()):
        allowed |= {name: _allowed(tolerance, error) for name, error in rounding().items() if name in allowed}
    for name, error in errors.items():
        if not error <= allowed[name]:
            raise VerificationError(
                f"verification: the {name} served differs from torch in {truth.precision} by {error:.1e} (relative), "
                f"expected at most {allowed[name]:.0e}; nothing was published. A model that mixes the examples "
                "of a batch, or draws random numbers in eval mode, cannot be served; for any other, a larger "
                "prior_precision or fewer weights make the posterior better conditioned"
            )
    return Verification(
        examples=len(truth.inputs),
        tolerance=max(allowed.values()),
        mean_error=errors["mean"],
        variance_error=errors["variance"],
        added_variance_error=errors.get("added_variance"),
        feature_scores_error=errors.get("feature_scores"),
        noise_scale_error=errors.get("noise_scale"),
    )


def _answers(predictor: Predictor, batch: Array) -> dict[str, Array]:
    prediction = predictor.predict(batch)
    answers = {"mean": prediction.mean, "variance": prediction.variance}
    found = predictor.graph.outputs(np.ascontiguousarray(batch))
    if found.features:
        answers["feature_scores"] = np.stack(list(found.features.values()), axis=1)
    if found.added is not None:
        answers["added_variance"] = found.added
    if found.noise_scale is not None:
        answers["noise_scale"] = found.noise_scale
    return answers


def _check_finite(answers: Mapping[str, Array], truth: Truth) -> None:
    """`VerificationError` for the first of the answers that is NaN or infinite."""
    for name, served in answers.items():
        bad = [i for i, values in enumerate(served) if not np.isfinite(values).all()]
        if bad:
            low, high = float(truth.inputs.min()), float(truth.inputs.max())
            raise VerificationError(
                f"verification: the {name} served is NaN or infinite for {len(bad)} of {len(served)} examples, whose "
                f"inputs are between {low:.3g} and {high:.3g}, and finite in torch in "
                f"{truth.precision}; nothing was published. It is served in float32, which ends at 3.4e+38: "
                "standardise the inputs, and bound the arguments of exp, powers and divisions (x.clamp(max=80).exp())"
            )


def _allowed(tolerance: float, rounding: float) -> float:
    return max(tolerance, min(LOOSEST, ROUNDING_FACTOR * rounding))


def relative_error(found: Array, expected: Array, *, absolute: bool, least: Array | float = 0.0) -> float:
    """Largest |found - expected|, over the batch's largest |expected| (`absolute`) or entry by entry, where
    smaller ones than `least` count as that."""
    largest = float(np.abs(expected).max())
    if largest == 0 and not np.any(least):
        return float(np.abs(found).max())
    scale = np.maximum(largest if absolute else np.maximum(np.abs(expected), SMALL_SHARE * largest), least)
    return float((np.abs(found.astype(np.float64) - expected) / scale).max())
