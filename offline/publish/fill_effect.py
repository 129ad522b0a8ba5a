"""What it changes to compute the variances of some outputs only and to fill in the others: measured, and published."""

import numpy as np

from offline.jacobian.jacobian import SubnetworkJacobian
from offline.jacobian.output_rule import ALL_OUTPUTS
from offline.job import Job
from offline.laplace.calibration import Calibrated, predict_held_out
from offline.runtime.arrays import to_numpy
from offline.runtime.progress import silent
from service.bundle import FillEffect
from service.maths.posterior_factor import PosteriorFactor

MOST_DERIVATIVES = 2000  # of single outputs; each may take a backward pass


def fill_effect(
    job: Job, jacobian: SubnetworkJacobian, posterior: PosteriorFactor, calibrated: Calibrated
) -> FillEffect:
    """Against the variances of all outputs, with the same threshold, on examples that set the threshold."""
    count = max(1, min(len(calibrated.data), MOST_DERIVATIVES // job.likelihood.outputs))
    data, served, likelihood = calibrated.data.at(np.arange(count)), calibrated.prediction, calibrated.likelihood
    mean, variance = predict_held_out(jacobian.with_rule(ALL_OUTPUTS), posterior, data, 1, silent)
    exact, targets = likelihood.predict(mean, variance), to_numpy(data.targets)
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
