"""A calibrated posterior on the examples that set the threshold, and what the bundle says of it."""

import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from demur.service.bundle import Calibration, CalibrationTensors
from demur.service.bundle import Outcomes as OutcomesPart
from demur.service.format.calibration_tensors import score_parts
from demur.service.inference.predictor import Prediction
from demur.service.maths.outcomes import Outcomes, RegressionOutcomes
from demur.service.maths.predictive import softmax
from demur.service.maths.rejection import RejectionRule
from demur.service.maths.scores import PREDICTIVE_ENTROPY

from ..data.calibration_check import quality_warnings
from ..data.held_out import HeldOut
from ..data.likelihood import (
    Classification,
    Likelihood,
    Multilabel,
    Regression,
    class_log_likelihood,
    with_noise_scale,
)
from ..evaluation.diagnostics import coverage_band, coverage_curve, each_label, expected_calibration_error
from ..evaluation.fifths import FIFTHS, fifths_covered
from ..runtime.arrays import Array, to_numpy
from ..section import Section
from .outcomes import Predicted, outcomes_of
from .scoring import HeldOutOutputs

ERRORS = 5.0  # standard errors that a fifth's coverage may be off: ten fifths of a few targets are looked at


@dataclass(frozen=True)
class Calibrated:
    """The examples that set the threshold, as they are served: outputs in float64 and prediction; and the rule.

    likelihood: with the observation noise, the temperature and the score in use. tuning: the examples that tuned, if
    any.
    """

    likelihood: Likelihood
    data: HeldOut
    outputs: HeldOutOutputs
    prediction: Prediction
    rule: RejectionRule
    tuning: Predicted | None = None

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
        return CalibrationTensors(self.rule.scores, self.outcomes, self.likelihood.scoring)

    def section(self, plain: Likelihood, names: Sequence[str] | None) -> Section:
        """In the manifest; plain: the likelihood of the network without uncertainty."""
        likelihood, rule = self.likelihood, self.rule
        calibration = Calibration(
            score=likelihood.scoring.name,
            examples=len(self.data),
            scored=None if len(rule.scores) == len(self.data) else len(rule.scores),
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
        mean, variance, scale = self.outputs.mean, self.outputs.variance, self.outputs.noise_scale
        both = with_noise_scale(likelihood, scale), with_noise_scale(plain, scale)
        metrics = held_out_metrics(mean, variance, self.targets, *both)
        quality = quality_warnings(metrics, mean, self.targets, likelihood, names)
        covered = coverage_warning(metrics, len(self.data), scale)
        return Section(fields, metrics, (*quality, *covered, *self._uneven(), *self._rejects_nothing()))

    def _uneven(self) -> Iterator[str]:
        """The fifth of the examples in which the intervals hold by far too many or too few targets: the worst."""
        outcomes, examples, level = self.outcomes, len(self.data) // len(FIFTHS), 0.95
        if not isinstance(outcomes, RegressionOutcomes):
            return
        covered = fifths_covered(self.prediction, self.targets, outcomes, level).items()
        found = [(share, by, i, k) for by, shares in covered for (i, k), share in np.ndenumerate(shares)]
        share, by, fifth, k = max(found, key=lambda one: abs(one[0] - level), default=(level, "", 0, 0))
        if abs(share - level) > ERRORS * math.sqrt(level * (1 - level) / max(examples, 1)):
            which = f" of output {k}" if self.likelihood.outputs > 1 else ""
            yield (
                f"of the fifth of the held-out examples with the {FIFTHS[fifth]} {by}{which}, {examples}, the 95 % "
                f"intervals hold {100 * share:.1f} % of the targets, which chance does not explain; "
                f"{_noise_words(self.outputs.noise_scale)}, or train on another scale of the target, as its logarithm"
            )

    def _rejects_nothing(self) -> Iterator[str]:
        """Where the threshold is next to the largest score there is."""
        threshold, outputs = self.rule.threshold, self.likelihood.outputs
        if self.likelihood.scoring is PREDICTIVE_ENTROPY and threshold >= 0.99 * math.log(outputs):
            yield (
                f"the reject threshold {threshold:.4g} is next to the largest entropy there is, log {outputs}: hardly "
                "anything can be rejected; the predictions are too uncertain, raise prior_precision"
            )


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


def coverage_warning(metrics: Mapping[str, float], examples: int, noise_scale: Array | None = None) -> tuple[str, ...]:
    """A warning where mean -+ 1.96 std of a regression holds more or fewer held-out targets than chance explains."""
    covered = metrics.get("calibration_coverage_95")
    if covered is None:
        return ()
    low, high = coverage_band(examples, 0.95)
    if low <= covered <= high:
        return ()
    verdict = "narrow" if covered < low else "wide"
    return (
        f"the Gaussian 95 % intervals, mean -+ 1.96 std, are too {verdict}: they hold {100 * covered:.1f} % of the "
        f"targets of {examples} held-out examples, expected {100 * low:.1f} to {100 * high:.1f} %; "
        f"{_noise_words(noise_scale)}, or set sigma_noise",
    )


def _noise_words(scale: Array | None) -> str:
    known = "is one number for every input" if scale is None else "depends on the input as far as other examples tell"
    return f"the noise {known}: if the calibration data are like what will be served, give more of them"


def _sigma_noise(likelihood: Likelihood) -> float | tuple[float, ...] | None:
    """One number where all outputs have the same noise."""
    if not isinstance(likelihood, Regression):
        return None
    return likelihood.noise if likelihood.ratios is None else tuple(likelihood.noises.tolist())
