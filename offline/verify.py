"""The serving code, run on the new bundle, against plain torch in float64. What is too far off is not published."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from service.bundle import Verification
from service.predictor import Predictor

Array = npt.NDArray[Any]
TOLERANCE = 1e-4
# Relative to the largest entry of the batch: below this share a variance is compared absolutely, since an output
# that a batch hardly moves has no digits left in float32.
SMALL_SHARE = 1e-6


class VerificationError(RuntimeError):
    """The bundle's answers differ from torch's by more than the tolerance; nothing was published."""


@dataclass(frozen=True)
class Truth:
    """Plain torch in float64: inputs as the service takes them, mean (n, K), jacobian (n, K, S), variance (n, K)."""

    inputs: Array
    mean: Array
    jacobian: Array
    variance: Array


def verify(folder: Path, truth: Truth, tolerance: float = TOLERANCE) -> Verification:
    """Load the bundle as the service does and compare; raises `VerificationError` above `tolerance`.

    Every example is predicted in one batch and alone, so that a batch dimension that was fixed by the export, or a
    network that mixes examples, shows here.
    """
    predictor = Predictor.load(folder)
    batches = [truth.inputs, *(truth.inputs[i : i + 1] for i in range(len(truth.inputs)))]
    predictions = [predictor.predict(batch) for batch in batches]
    jacobians = [predictor.mean_and_jacobian(np.ascontiguousarray(batch))[1] for batch in batches]
    whole, single = slice(0, 1), slice(1, None)
    errors = {
        "mean": _both(truth.mean, [p.mean for p in predictions], whole, single, absolute=True),
        "jacobian": _both(truth.jacobian, jacobians, whole, single, absolute=True),
        "variance": _both(truth.variance, [p.variance for p in predictions], whole, single, absolute=False),
    }
    for name, error in errors.items():
        if not error <= tolerance:
            raise VerificationError(
                f"verification: the {name} served differs from torch in float64 by {error:.1e} (relative), expected at "
                f"most {tolerance:.0e}; nothing was published. A larger prior_precision or fewer weights make the "
                "posterior better conditioned; a model that mixes the examples of a batch cannot be served"
            )
    return Verification(
        examples=len(truth.inputs),
        tolerance=tolerance,
        mean_error=errors["mean"],
        jacobian_error=errors["jacobian"],
        variance_error=errors["variance"],
    )


def _both(expected: Array, parts: list[Array], whole: slice, single: slice, *, absolute: bool) -> float:
    """The larger of the errors of the joint batch and of the examples one by one."""
    return max(relative_error(np.concatenate(parts[s]), expected, absolute=absolute) for s in (whole, single))


def relative_error(found: Array, expected: Array, *, absolute: bool) -> float:
    """Largest |found - expected|, over the batch's largest |expected| (`absolute`) or entry by entry."""
    largest = float(np.abs(expected).max())
    if largest == 0:
        return float(np.abs(found).max())
    scale = largest if absolute else np.maximum(np.abs(expected), SMALL_SHARE * largest)
    return float((np.abs(found.astype(np.float64) - expected) / scale).max())
