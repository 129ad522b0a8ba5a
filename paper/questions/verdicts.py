"""Whether a variant beats the product by more than the noise: paired differences over seeds."""

from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import stats  # type: ignore[import-untyped]

MEASURES = ("usual", "shifted", "auroc")
CONFIDENCE = 0.95


def verdicts(runs: list[dict[str, Any]], product: str) -> list[dict[str, Any]]:
    """For each network, choice of weights and variant, the gain over the product in each measure.

    usual: log-likelihood without a shift; shifted: its mean over the shifts, kinds that no strategy saw; auroc: of the
    predictive entropy for foreign images. A gain is beyond the noise where the 95 % interval of the mean of the paired
    differences over seeds (Student's t) does not hold 0.
    """
    found = []
    for network, weights in dict.fromkeys((run["network"], run["weights"]) for run in runs):
        own = [run["variants"] for run in runs if (run["network"], run["weights"]) == (network, weights)]
        for variant in own[0]:
            gains = {
                measure: _gain(
                    [_measured(one[variant], measure) for one in own], [_measured(one[product], measure) for one in own]
                )
                for measure in MEASURES
            }
            found.append({"network": network, "weights": weights, "variant": variant, "seeds": len(own)} | gains)
    return found


def _measured(variant: dict[str, Any], measure: str) -> float:
    if measure == "usual":
        return float(variant["log_likelihood"]["0"])
    return float(variant["shifted"] if measure == "shifted" else np.mean(list(variant["auroc"].values())))


def _gain(values: list[float], product: list[float]) -> dict[str, Any]:
    """The value, its gain over the product, half the width of the interval (None for one seed), and the verdict."""
    gains = np.subtract(values, product)
    half = half_width(gains) if len(gains) > 1 else None
    beyond = half is not None and abs(float(gains.mean())) > half and bool(gains.any())
    return {
        "mean": float(np.mean(values)),
        "gain": float(gains.mean()),
        "half_width": half,
        "verdict": ("better" if gains.mean() > 0 else "worse") if beyond else "within the noise",
    }


def half_width(gains: npt.NDArray[Any]) -> float:
    """Half the 95 % interval of their mean (Student's t)."""
    return float(stats.t.ppf((1 + CONFIDENCE) / 2, len(gains) - 1) * gains.std(ddof=1) / np.sqrt(len(gains)))
