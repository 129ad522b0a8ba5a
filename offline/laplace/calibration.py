"""Held-out data decide: temperature and reject threshold here, the prior precision in `probity.offline.laplace.prior`.

The examples that tune anything never set the threshold: the data are split once, at random by the seed, and the
conformal half is seen only after everything else is fixed (otherwise its p-values would not be valid).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np

from probity.offline.data.held_out import HeldOut
from probity.offline.data.likelihood import (
    Classification,
    Likelihood,
    Multilabel,
    Regression,
    class_log_likelihood,
)
from probity.offline.data.loaders import rows_within
from probity.offline.evaluation.diagnostics import coverage_curve, each_label, expected_calibration_error
from probity.offline.features.added_weights import AddedWeights
from probity.offline.jacobian.jacobian import SubnetworkJacobian
from probity.offline.jacobian.output_rule import filled
from probity.offline.job import Job
from probity.offline.laplace.scoring import Compared, HeldOutOutputs, choose_score
from probity.offline.laplace.temperature import suited
from probity.offline.runtime.arrays import Array, to_numpy
from probity.offline.runtime.progress import Track
from probity.service.bundle import REFERENCE_LEVELS
from probity.service.inference.predictor import Prediction
from probity.service.maths.predictive import softmax
from probity.service.maths.rejection import RejectionRule

MEMORY_BYTES = 256 * 2**20
MAX_ROWS = 32  # activations and gradients of a batch take memory too, and more rows at once gain no speed


def held_out_rows(jacobian: SubnetworkJacobian, outputs: int) -> int:
    """Examples at once, for the Jacobian and its product in float64."""
    return min(MAX_ROWS, rows_within(MEMORY_BYTES, 24 * jacobian.rule.count(outputs) * jacobian.size))


class GivesVariance(Protocol):
    """A posterior over the chosen weights."""

    def variance(self, jacobian: Array) -> Array:
        """Diagonal of J Sigma J^T; jacobian (B, K, S) -> (B, K)."""
        ...


@dataclass(frozen=True)
class Predicted:
    """Held-out examples and what the service predicts for them."""

    data: HeldOut
    prediction: Prediction


@dataclass(frozen=True)
class Calibrated:
    """The examples that set the threshold, as they are served: mean, variance (n, K), prediction; and the rule.

    likelihood: with the observation noise, the temperature and the score in use. tuning: the examples that tuned, if
    any. compared: the scores that were compared, if any. features: the feature scores (n,), by name.
    """

    likelihood: Likelihood
    data: HeldOut
    mean: Array
    variance: Array
    prediction: Prediction
    rule: RejectionRule
    tuning: Predicted | None = None
    compared: tuple[Compared, ...] = ()
    features: Mapping[str, Array] = field(default_factory=dict)


def calibrate(
    job: Job,
    jacobian: SubnetworkJacobian,
    posterior: GivesVariance,
    likelihood: Likelihood,
    tuning: HeldOut,
    conformal: HeldOut,
    rows: int,
    added: AddedWeights | None = None,
) -> Calibrated:
    """Fit the temperature if that is left to do and choose the score, then set the reject threshold; at most `rows`
    examples at once. added: with the prior variance that was chosen, and the temperature with it."""
    rows = min(rows, held_out_rows(jacobian, likelihood.outputs))

    def outputs(data: HeldOut) -> HeldOutOutputs:
        mean, variance = predict_held_out(jacobian, posterior, data, rows, job.track)
        if added is None:
            return HeldOutOutputs(mean, variance)
        extra, distance = added.of_all(job.network, data.inputs, rows)
        return HeldOutOutputs(mean, variance + extra[:, np.newaxis] * likelihood.added_share, {"distance": distance})

    tuned = outputs(tuning) if len(tuning) else None
    if isinstance(likelihood, Classification) and job.config.fits_temperature and added is None:
        assert tuned is not None  # what is tuned has examples
        likelihood = suited(likelihood, tuned.mean, tuned.variance, to_numpy(tuning.targets))
    chosen = choose_score(job, likelihood, tuning, tuned, outputs)
    if chosen is not None:
        likelihood = replace(likelihood, scoring=chosen.scoring)
    found = outputs(conformal)
    prediction = _finite(likelihood, found)
    rule = RejectionRule(np.sort(prediction.score), job.config.false_reject_rate)
    known = None if tuned is None else Predicted(tuning, _finite(likelihood, tuned))
    compared = () if chosen is None else chosen.compared
    return Calibrated(
        likelihood, conformal, found.mean, found.variance, prediction, rule, known, compared, found.features
    )


def _finite(likelihood: Likelihood, found: HeldOutOutputs) -> Prediction:
    prediction = likelihood.predict(found.mean, found.variance, found.features)
    if not prediction.finite.all():
        raise ValueError(
            f"held-out data: found outputs up to {np.abs(found.mean).max():.1e} and variances up to "
            f"{found.variance.max():.1e}, expected numbers that float32 holds; standardise the inputs, or give a "
            "larger prior_precision"
        )
    return prediction


def predict_held_out(
    jacobian: SubnetworkJacobian, posterior: GivesVariance, data: HeldOut, rows: int, track: Track
) -> tuple[Array, Array]:
    """(mean, variance), (n, K) float64, by the formula that the service uses, `rows` examples at once."""
    means, variances = [], []
    for inputs, _ in data.chunks(rows, track, "Held-out scores"):
        mean, derivatives = jacobian.predictive(inputs)
        means.append(to_numpy(mean.double()))
        variances.append(filled(jacobian.rule, posterior.variance(to_numpy(derivatives.double())), mean))
    return np.concatenate(means), np.concatenate(variances)


def reference_quantiles(prediction: Prediction) -> dict[str, Array]:
    """Quantiles of the service's measures on the conformal half: the reference for drift on a dashboard."""
    quantities = {"functional_variance": prediction.variance.max(axis=1)}
    if prediction.probabilities is not None and prediction.total is not None and not prediction.multilabel:
        quantities["normalised_entropy"] = prediction.total / np.log(prediction.probabilities.shape[1])
    return {name: np.quantile(values, REFERENCE_LEVELS) for name, values in quantities.items()}


def held_out_metrics(
    mean: Array, variance: Array, targets: Array, likelihood: Likelihood, plain: Likelihood
) -> dict[str, float]:
    """Quality on held-out data: mean log-likelihood with and without uncertainty; calibration error and accuracy, or
    RMSE and coverage.

    `_map` marks the network without uncertainty: under `plain`, which has the noise or the temperature that suits it.
    `_plain`: a classification at temperature 1. `calibration_accuracy` is that of the most probable classes as they are
    served; of several labels an example, the share with all of them right, and `calibration_label_accuracy` that of
    labels that are right.
    """
    none = np.zeros_like(variance)
    metrics = {
        "calibration_log_likelihood": float(likelihood.log_likelihood(mean, variance, targets).mean()),
        "calibration_log_likelihood_map": float(plain.log_likelihood(mean, none, targets).mean()),
    }
    if isinstance(likelihood, Regression):
        metrics["calibration_rmse"] = float(np.sqrt(np.square(mean - targets).mean()))
        metrics["calibration_coverage_95"] = float(
            coverage_curve(mean, likelihood.std(variance), targets, np.array([0.95]))[0]
        )
    elif isinstance(likelihood, Multilabel):
        assert isinstance(plain, Multilabel)
        each = {"": likelihood, "_map": plain, "_plain": replace(plain, temperature=1.0)}
        for step, one in each.items():
            p = one.probabilities(mean, none if step else variance)
            metrics[f"calibration_error{step}"] = expected_calibration_error(*each_label(p, targets))
        metrics["calibration_log_likelihood_plain"] = float(each["_plain"].log_likelihood(mean, none, targets).mean())
        right = (mean >= 0) == (targets > 0)  # the divisor of a logit leaves its sign
        metrics["calibration_accuracy"] = float(right.all(axis=1).mean())
        metrics["calibration_label_accuracy"] = float(right.mean())
    else:
        assert isinstance(plain, Classification)
        served, untempered = likelihood.probabilities(mean, variance), softmax(mean)
        metrics["calibration_log_likelihood_plain"] = float(class_log_likelihood(untempered, targets).mean())
        metrics["calibration_error"] = expected_calibration_error(served, targets)
        metrics["calibration_error_map"] = expected_calibration_error(plain.probabilities(mean, none), targets)
        metrics["calibration_error_plain"] = expected_calibration_error(untempered, targets)
        metrics["calibration_accuracy"] = float((served.argmax(axis=1) == targets).mean())
        metrics["calibration_accuracy_map"] = float((untempered.argmax(axis=1) == targets).mean())
    return metrics
