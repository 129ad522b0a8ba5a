"""What it changes to compute the variances of some outputs only and to fill in the others: measured, and published."""

import time

import numpy as np

from demur.service.bundle import FillEffect
from demur.service.maths.posterior_factor import CholeskyPosterior

from ..data.held_out import HeldOut
from ..jacobian.jacobian import SubnetworkJacobian
from ..jacobian.output_rule import ALL_OUTPUTS
from ..laplace.calibrated import Calibrated
from ..laplace.calibration import predict_held_out
from ..runtime.arrays import Array, to_numpy
from ..runtime.progress import silent

MOST_EXAMPLES, MOST_SECONDS = 256, 20.0  # each output may take a backward pass
HARM = 0.05  # of a probability or of the decisions


def fill_effect(jacobian: SubnetworkJacobian, posterior: CholeskyPosterior, calibrated: Calibrated) -> FillEffect:
    """Against the variances of all outputs, with the same threshold, on examples that set the threshold."""
    served, likelihood = calibrated.prediction, calibrated.likelihood
    mean, variance = _of_all_outputs(jacobian.with_rule(ALL_OUTPUTS), posterior, calibrated.data)
    count = len(mean)
    features = {name: scores[:count] for name, scores in calibrated.features.items()}
    exact = likelihood.predict(mean, variance, features)
    targets = to_numpy(calibrated.data.targets)[:count]
    assert served.probabilities is not None
    assert exact.probabilities is not None
    differences = np.abs(served.probabilities[:count] - exact.probabilities).max(axis=1)
    filled = likelihood.log_likelihood(calibrated.mean[:count], calibrated.variance[:count], targets)
    changed = calibrated.rule.rejected(served.score[:count]) != calibrated.rule.rejected(exact.score)
    return FillEffect(
        examples=count,
        probability_difference=float(differences.mean()),
        log_likelihood_difference=float((filled - likelihood.log_likelihood(mean, variance, targets)).mean()),
        decisions_changed=float(changed.mean()),
    )


def _of_all_outputs(jacobian: SubnetworkJacobian, posterior: CholeskyPosterior, data: HeldOut) -> tuple[Array, Array]:
    """Mean and variance, (m, K), of as many of the first examples as the time allows, and of one at least."""
    found, start = [], time.monotonic()
    for place in range(min(len(data), MOST_EXAMPLES)):
        found.append(predict_held_out(jacobian, posterior, data.at(np.array([place])), 1, silent))
        if time.monotonic() - start > MOST_SECONDS:
            break
    means, variances = zip(*found, strict=True)
    return np.concatenate(means), np.concatenate(variances)


def fill_warnings(effect: FillEffect) -> list[str]:
    """A warning where filling in changes what the service says."""
    if max(effect.probability_difference, effect.decisions_changed) <= HARM:
        return []
    return [
        f"variances that are filled in, not computed, change a probability by {effect.probability_difference:.2g} on "
        f"average and {100 * effect.decisions_changed:.0f} % of the decisions, on {effect.examples} held-out examples; "
        "give a larger number as variance_of, or 'all'"
    ]
