"""Held-out data decide: temperature and reject threshold here, the prior precision in `demur.offline.laplace.prior`.

The examples that tune anything never set the threshold: the data are split once, at random by the seed, and the
conformal half is seen only after everything else is fixed (otherwise its p-values would not be valid).
"""

import math
from dataclasses import replace

import numpy as np

from demur.service.inference.predictor import Prediction
from demur.service.maths.posterior_factor import CholeskyPosterior
from demur.service.maths.rejection import RejectionRule
from demur.service.maths.scores import DISTANCE

from ..data.held_out import HeldOut
from ..data.likelihood import Classification, Likelihood, Multilabel, Regression, with_noise_scale
from ..features.added_weights import AddedWeights
from ..jacobian.jacobian import SubnetworkJacobian
from ..job import Job
from ..runtime.arrays import Array, to_numpy
from ..runtime.peak_memory import rows_within
from ..runtime.progress import Track
from .calibrated import Calibrated
from .outcomes import Predicted
from .scoring import HeldOutOutputs, Raised, choose_score
from .temperature import suited

MEMORY_BYTES = 256 * 2**20
MAX_ROWS = 32  # activations and gradients of a batch take memory too, and more rows at once gain no speed


def held_out_rows(jacobian: SubnetworkJacobian, outputs: int) -> int:
    """Examples at once, for the Jacobian and its product in float64."""
    return min(MAX_ROWS, rows_within(MEMORY_BYTES, 24 * outputs * jacobian.size))


def calibrate(
    job: Job,
    jacobian: SubnetworkJacobian,
    posterior: CholeskyPosterior,
    likelihood: Likelihood,
    tuning: HeldOut,
    conformal: HeldOut,
    added: AddedWeights | None = None,
) -> Calibrated:
    """Fit the temperature if that is left to do and choose the score, then set the reject threshold. added: with the
    gate that was chosen, and the temperature with it."""
    rows = held_out_rows(jacobian, likelihood.outputs)

    def outputs(data: HeldOut) -> HeldOutOutputs:
        mean, variance = predict_held_out(jacobian, posterior, data, rows, job.track)
        if added is None:
            return HeldOutOutputs(mean, variance)
        extra, features, psi = added.of_all(job.network, data.inputs, rows)
        gated, _, _, passed = added.gate.of(variance, extra, likelihood.added_share)
        scale = None if added.noise is None else added.noise.of(psi, mean, passed)
        return HeldOutOutputs(mean, gated, dict(zip(added.feature_scores, features.T, strict=True)), scale)

    tuned = outputs(tuning) if len(tuning) else None
    if isinstance(likelihood, Classification) and job.config.fits_temperature and added is None:
        assert tuned is not None  # what is tuned has examples
        likelihood = suited(likelihood, tuned.mean, tuned.variance, to_numpy(tuning.targets))
    scoring = choose_score(job.config.score, likelihood, tuned)
    if scoring is not None:
        likelihood = replace(likelihood, scoring=scoring)
    found = outputs(conformal)
    prediction = _finite(likelihood, found)
    known = None if tuned is None else Predicted(tuning, _finite(likelihood, tuned))
    scores = [prediction.score]
    if known is not None and isinstance(likelihood, Regression) and likelihood.scoring is DISTANCE:
        scores.append(known.prediction.score)  # training data alone make it, so that no example has tuned it
    rule = RejectionRule(np.sort(np.concatenate(scores)), job.config.false_reject_rate)
    return Calibrated(likelihood, conformal, found, prediction, rule, known)


def _finite(likelihood: Likelihood, found: HeldOutOutputs) -> Prediction:
    """What is predicted, its scores raised to be compared with."""
    most = likelihood.outputs * math.log(2) if isinstance(likelihood, Multilabel) else math.log(likelihood.outputs)
    raised = Raised(likelihood.scoring, likelihood.scoring.name, most)
    likelihood = with_noise_scale(replace(likelihood, scoring=raised), found.noise_scale)
    prediction = likelihood.predict(found.mean, found.variance, found.features)
    if not prediction.finite.all():
        raise ValueError(
            f"held-out data: found outputs up to {np.abs(found.mean).max():.1e} and variances up to "
            f"{found.variance.max():.1e}, expected numbers that float32 holds; standardise the inputs, or give a "
            "larger prior_precision"
        )
    return prediction


def predict_held_out(
    jacobian: SubnetworkJacobian, posterior: CholeskyPosterior, data: HeldOut, rows: int, track: Track
) -> tuple[Array, Array]:
    """(mean, variance), (n, K) float64, by the formula that the service uses, `rows` examples at once."""
    means, variances = [], []
    for inputs, _ in data.chunks(rows, track, "Held-out scores"):
        mean, derivatives = jacobian(inputs)
        means.append(to_numpy(mean.double()))
        variances.append(posterior.variance(to_numpy(derivatives.double())))
    return np.concatenate(means), np.concatenate(variances)
