"""A calibrated posterior on the examples that set the threshold, and what the bundle says of it."""

import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from demur.service.bundle import REFERENCE_LEVELS, Calibration, CalibrationTensors, ScorePart
from demur.service.bundle import Outcomes as OutcomesPart
from demur.service.inference.predictor import Prediction
from demur.service.maths.outcomes import Outcomes
from demur.service.maths.predictive import softmax
from demur.service.maths.rejection import RejectionRule
from demur.service.maths.scores import PREDICTIVE_ENTROPY, Scoring
from demur.service.maths.surprise import LargestSurprise

from ..data.calibration_check import quality_warnings
from ..data.held_out import HeldOut
from ..data.likelihood import Classification, Likelihood, Multilabel, Regression, class_log_likelihood
from ..evaluation.diagnostics import coverage_band, coverage_curve, each_label, expected_calibration_error
from ..runtime.arrays import Array, to_numpy
from ..section import Section
from .outcomes import Predicted, outcomes_of


@dataclass(frozen=True)
class Calibrated:
    """The examples that set the threshold, as they are served: mean, variance (n, K), prediction; and the rule.

    likelihood: with the observation noise, the temperature and the score in use. tuning: the examples that tuned, if
    any. features: the feature scores (n,), by name.
    """

    likelihood: Likelihood
    data: HeldOut
    mean: Array
    variance: Array
    prediction: Prediction
    rule: RejectionRule
    tuning: Predicted | None = None
    features: Mapping[str, Array] = field(default_factory=dict)

    @functools.cached_property
    def _turned_out(self) -> tuple[Outcomes, OutcomesPart]:
        return outcomes_of(Predicted(self.data, self.prediction), self.tuning)

    @property
    def outcomes(self) -> Outcomes:
        """How the examples turned out, in the order of their scores."""
        return self._turned_out[0]

    @property
    def targets(self) -> Array:
        """(n,) or (n, K)."""
        return to_numpy(self.data.targets)

    def tensors(self) -> CalibrationTensors:
        """The file of the bundle."""
        reference = reference_quantiles(self.prediction)
        return CalibrationTensors(self.rule.scores, self.outcomes, reference, self.likelihood.scoring)

    def section(self, plain: Likelihood, names: Sequence[str] | None) -> Section:
        """In the manifest; plain: the likelihood of the network without uncertainty."""
        likelihood, rule = self.likelihood, self.rule
        calibration = Calibration(
            score=likelihood.scoring.name,
            examples=len(rule.scores),
            false_reject_rate=rule.false_reject_rate,
            threshold=rule.threshold,
            outcomes=self._turned_out[1],
            parts=score_parts(likelihood.scoring),
        )
        fields = {
            "outputs": likelihood.outputs,
            "sigma_noise": _sigma_noise(likelihood),
            "temperature": likelihood.temperature,
            "map_temperature": likelihood.plain_temperature,
            "link": likelihood.link,
            "calibration": calibration,
        }
        metrics = held_out_metrics(self.mean, self.variance, self.targets, likelihood, plain)
        quality = quality_warnings(metrics, self.mean, self.targets, likelihood, names)
        return Section(
            fields, metrics, (*quality, *coverage_warning(metrics, len(self.data)), *self._rejects_nothing())
        )

    def _rejects_nothing(self) -> Iterator[str]:
        """Where the threshold is next to the largest score there is."""
        threshold, outputs = self.rule.threshold, self.likelihood.outputs
        if self.likelihood.scoring is PREDICTIVE_ENTROPY and threshold >= 0.99 * math.log(outputs):
            yield (
                f"the reject threshold {threshold:.4g} is next to the largest entropy there is, log {outputs}: hardly "
                "anything can be rejected; the predictions are too uncertain, raise prior_precision"
            )


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


def coverage_warning(metrics: Mapping[str, float], examples: int) -> tuple[str, ...]:
    """A warning where the 95 % intervals of a regression hold more or fewer held-out targets than chance explains."""
    covered = metrics.get("calibration_coverage_95")
    if covered is None:
        return ()
    low, high = coverage_band(examples, 0.95)
    if low <= covered <= high:
        return ()
    verdict = "narrow" if covered < low else "wide"
    return (
        f"the 95 % intervals are too {verdict}: they hold {100 * covered:.1f} % of the targets of {examples} held-out "
        f"examples, expected {100 * low:.1f} to {100 * high:.1f} %; sigma_noise is one number for every input: if the "
        "calibration data are like what will be served, give more of them, or set sigma_noise",
    )


def score_parts(scoring: Scoring) -> tuple[ScorePart, ...] | None:
    """What a score is made of; None for a single one."""
    if not isinstance(scoring, LargestSurprise):
        return None
    known = ((part, part.distribution) for part in scoring.components)
    return tuple(ScorePart(p.score.name, d.scale, d.shape, p.least) for p, d in known)


def _sigma_noise(likelihood: Likelihood) -> float | tuple[float, ...] | None:
    """One number where all outputs have the same noise."""
    if not isinstance(likelihood, Regression):
        return None
    return likelihood.noise if likelihood.ratios is None else tuple(likelihood.noises.tolist())
