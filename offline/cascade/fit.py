"""Fit the cascade: the first stage's posterior, the band on the data that tune, the rule on those that do not.

The band and the threshold that it separates are chosen on the tuning half and on synthetic shifts of it. The conformal
half, which chose nothing, then measures how often the stages agree, and gives the scores by which the cascade as a
whole rejects.
"""

from dataclasses import dataclass, replace

import numpy as np

from offline.cascade.band import Verdicts, choose_band
from offline.cascade.first_stage import FirstStage
from offline.data.held_out import HeldOut
from offline.data.likelihood import Likelihood
from offline.data.shifts import finite_shifts
from offline.jacobian.jacobian import SubnetworkJacobian
from offline.job import Job
from offline.laplace.calibration import Calibrated, GivesVariance, Predicted, held_out_rows, predict_held_out
from offline.laplace.inference import Inference, infer
from offline.runtime.arrays import Array, to_numpy
from service.bundle import CascadeAgreement
from service.inference.predictor import Prediction
from service.maths.cascade import Band
from service.maths.rejection import RejectionRule, minimum_calibration_examples, share_bound

SHIFTED_EXAMPLES = 250  # of each half, under each shift
CONFIDENCE = 0.95
LEAST_THRESHOLD = 1e-30  # as in the format


@dataclass(frozen=True)
class Stage:
    """The Jacobian and the posterior of one stage; `rows`: examples at once."""

    job: Job
    jacobian: SubnetworkJacobian
    posterior: GivesVariance
    rows: int

    def predict(self, data: HeldOut) -> tuple[Array, Array]:
        """Mean and variance, (n, K) float64 both."""
        rows = min(self.rows, held_out_rows(self.jacobian, self.job.likelihood.outputs))
        return predict_held_out(self.jacobian, self.posterior, data, rows, self.job.track)

    def scores(self, data: HeldOut, likelihood: Likelihood) -> Array:
        """The out-of-distribution scores, (n,)."""
        return likelihood.predict(*self.predict(data)).score


@dataclass(frozen=True)
class FittedCascade:
    """The first stage and its posterior, the band, the prediction of the cascade as a whole on the conformal half with
    the rule that its scores set, its prediction on the half that tunes, and the agreement of the stages, of which
    `target` was asked for."""

    jacobian: SubnetworkJacobian
    inference: Inference
    band: Band
    prediction: Prediction
    tuning: Predicted
    rule: RejectionRule
    agreement: CascadeAgreement
    target: float

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings for the user."""
        found = [f"first stage of the cascade: {text}" for text in self.inference.warnings]
        if self.agreement.decided == 0:
            found.append(
                f"the first stage of the cascade decides none of {self.agreement.examples} held-out examples: with it, "
                "every prediction costs more; leave PROBITY_CASCADE off, or give a smaller cascade_agreement"
            )
        elif self.agreement.agreement is not None and self.agreement.agreement < self.target:
            found.append(
                f"the first stage of the cascade has the verdict of the full posterior on "
                f"{100 * self.agreement.agreement:.1f} % of the {self.agreement.decided} held-out examples that it "
                f"decides (at least {100 * self.agreement.lower_bound:.1f} %), less than the {100 * self.target:.4g} % "
                "asked for; give more held-out data, or a larger cascade_agreement"
            )
        return tuple(found)


def check_tuning(tuning: HeldOut, false_reject_rate: float) -> None:
    """`ValueError` where the tuning half is too small to have a threshold that a band could separate."""
    needed = minimum_calibration_examples(false_reject_rate)
    if len(tuning) < needed:
        raise ValueError(
            f"cascade: found {len(tuning)} held-out examples that tune, expected at least {needed} for "
            f"false_reject_rate={false_reject_rate}, so {2 * needed} in all; give more held-out data or a larger rate"
        )


def fit_cascade(job: Job, first: FirstStage, full: Stage, calibrated: Calibrated, tuning: HeldOut) -> FittedCascade:
    """The first stage gets the temperature and the noise of the full one, and its own prior precision."""
    likelihood = calibrated.likelihood
    inference = infer(_first_job(job, likelihood), first.jacobian, first.curvature, tuning)
    cheap = Stage(job, first.jacobian, inference.factor, full.rows)
    band = _band(job, cheap, full, calibrated, tuning)
    return _calibrated(job, cheap, full, calibrated, inference, band)


def _first_job(job: Job, likelihood: Likelihood) -> Job:
    """The job by which the first stage's posterior is inferred: what the full one estimated is given."""
    known = {"posterior": "cholesky", "temperature": likelihood.temperature}
    if likelihood.sigma_noise is not None:
        known["sigma_noise"] = likelihood.sigma_noise
    return replace(job, config=job.config.model_copy(update=known), likelihood=likelihood)


def _band(job: Job, cheap: Stage, full: Stage, calibrated: Calibrated, tuning: HeldOut) -> Band:
    assert calibrated.tuning is not None  # `check_tuning`
    likelihood, scores = calibrated.likelihood, calibrated.tuning.prediction.score
    threshold = RejectionRule(np.sort(scores), job.config.false_reject_rate).threshold
    if not threshold > LEAST_THRESHOLD:
        raise ValueError(
            f"cascade: found the reject threshold {threshold:.3g} on held-out data, expected a positive one: the "
            "network is certain of nearly every held-out example, so no band separates its verdicts; leave cascade out"
        )
    groups = [Verdicts(cheap.scores(tuning, likelihood), scores > threshold)]
    groups += _under_shift(job, cheap, full, likelihood, tuning, threshold)
    return choose_band(groups, threshold, job.config.cascade_agreement)


def _under_shift(
    job: Job, cheap: Stage, full: Stage, likelihood: Likelihood, data: HeldOut, threshold: float
) -> list[Verdicts]:
    """The stages under all synthetic shifts of the first examples, as one group; none where no shift can be made."""
    some = data.at(np.arange(min(len(data), SHIFTED_EXAMPLES)))
    shifted = [replace(some, inputs=x) for x in finite_shifts(job.network, some.inputs, job.config.seed).values()]
    if not shifted:
        return []
    first = np.concatenate([cheap.scores(each, likelihood) for each in shifted])
    second = np.concatenate([full.scores(each, likelihood) for each in shifted])
    usable = np.isfinite(first) & np.isfinite(second)  # a shift far out may overflow what the posterior multiplies
    return [Verdicts(first[usable], second[usable] > threshold)] if usable.any() else []


def _calibrated(
    job: Job, cheap: Stage, full: Stage, calibrated: Calibrated, inference: Inference, band: Band
) -> FittedCascade:
    """The rule of the cascade as a whole, and the agreement of the stages, on the examples that set the threshold."""
    likelihood, data = calibrated.likelihood, calibrated.data
    first, variance, prediction = _in_stages(cheap, Predicted(data, calibrated.prediction), likelihood, band)
    assert calibrated.tuning is not None
    tuning = replace(calibrated.tuning, prediction=_in_stages(cheap, calibrated.tuning, likelihood, band)[2])
    score = prediction.score
    rule = RejectionRule(np.sort(score), job.config.false_reject_rate)
    shifted = _under_shift(job, cheap, full, likelihood, data, band.threshold)
    targets = to_numpy(data.targets)
    gained = likelihood.log_likelihood(calibrated.mean, variance, targets) - likelihood.log_likelihood(
        calibrated.mean, calibrated.variance, targets
    )
    changed = rule.rejected(score) != calibrated.rule.rejected(calibrated.prediction.score)
    agreement = measure_agreement(
        band,
        Verdicts(first, calibrated.prediction.score > band.threshold),
        shifted[0] if shifted else None,
        verdicts_changed=float(changed.mean()),
        log_likelihood_difference=float(gained.mean()),
    )
    target = job.config.cascade_agreement
    return FittedCascade(cheap.jacobian, inference, band, prediction, tuning, rule, agreement, target)


def _in_stages(cheap: Stage, full: Predicted, likelihood: Likelihood, band: Band) -> tuple[Array, Array, Prediction]:
    """The first stage's scores (n,), the variances (n, K) and the prediction of the cascade, given those of the full
    stage."""
    mean, variance = cheap.predict(full.data)
    first = likelihood.predict(mean, variance).score
    decided = band.decided(first)
    variance = np.where(decided[:, np.newaxis], variance, full.prediction.variance)
    score = np.where(decided, band.placed(first), full.prediction.score)
    return first, variance, replace(likelihood.predict(full.prediction.mean, variance), score=score)


def measure_agreement(
    band: Band,
    held_out: Verdicts,
    shifted: Verdicts | None,
    *,
    verdicts_changed: float,
    log_likelihood_difference: float,
) -> CascadeAgreement:
    """How often the first stage, where it decides, has the verdict of the full one at the band's threshold.

    lower_bound: by Clopper and Pearson (1934), one-sided, for examples that chose neither the band nor its threshold.
    """
    count, agreeing = agreements(band, held_out)
    shift_count, shift_agreeing = (0, 0) if shifted is None else agreements(band, shifted)
    return CascadeAgreement(
        examples=len(held_out.scores),
        decided=count,
        agreement=agreeing / count if count else None,
        lower_bound=1 - share_bound(count, count - agreeing + 1, CONFIDENCE),
        verdicts_changed=verdicts_changed,
        log_likelihood_difference=log_likelihood_difference,
        shift_decided=None if shifted is None else shift_count / len(shifted.scores),
        shift_agreement=shift_agreeing / shift_count if shift_count else None,
    )


def agreements(band: Band, verdicts: Verdicts) -> tuple[int, int]:
    """How many examples the first stage decides, and on how many of these the full stage agrees."""
    decided = band.decided(verdicts.scores)
    same = band.rejects(verdicts.scores) == verdicts.rejected
    return int(np.count_nonzero(decided)), int(np.count_nonzero(decided & same))
