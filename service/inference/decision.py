"""What is decided of each output of the graph: the rule that rejects, sets, intervals, and the accuracy to expect."""

import functools
import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from ..bundle import MANIFEST, Bundle, BundleError, Manifest
from ..maths.certified import CertifiedRule, NotCertified, certify
from ..maths.class_rules import LEAST_EXAMPLES, ClassRules
from ..maths.estimated_accuracy import HeldOutAccuracy
from ..maths.outcomes import ClassOutcomes, LabelOutcomes, Outcomes, RegressionOutcomes, Verdicts
from ..maths.prediction_sets import ClassSets, ConformalIntervals, LabelSets, PredictionSets, conformal_rank
from ..maths.predictive import gaussian_interval
from ..maths.rejection import RejectionRule, minimum_calibration_examples, share_bound
from .graph import GraphOutputs
from .policy import Policy
from .prediction import Prediction, Predictive, finite_rows

Array = npt.NDArray[Any]
Rule = RejectionRule | ClassRules
CONFIDENCE = 0.95


@dataclass(frozen=True)
class Decision:
    """Outputs -> predictions, by the calibration part of one bundle and by a policy.

    rule: rejects; pooled: compares a score with all calibration scores. They differ where each class has a rule of its
    own. sets, residuals: what prediction sets or intervals are made of; None where the task has none.
    """

    manifest: Manifest
    policy: Policy
    predictive: Predictive
    rule: Rule
    pooled: RejectionRule
    outcomes: Outcomes
    sets: PredictionSets | LabelSets | None
    residuals: ConformalIntervals | None

    @classmethod
    def of(cls, bundle: Bundle, policy: Policy) -> "Decision":
        """Raises `BundleError` for what the bundle cannot give."""
        manifest, calibration = bundle.manifest, bundle.calibration
        own = RejectionRule(calibration.scores, manifest.calibration.false_reject_rate)
        _check_threshold(own, manifest.calibration.threshold, bundle)
        outcomes = calibration.outcomes
        rule = _rule(own, outcomes, policy, bundle)
        pooled = rule if isinstance(rule, RejectionRule) else own.at(rule.false_reject_rate)
        residuals = ConformalIntervals(outcomes.residuals) if isinstance(outcomes, RegressionOutcomes) else None
        predictive = Predictive.of(manifest, calibration.scoring)
        return cls(manifest, policy, predictive, rule, pooled, outcomes, _sets(outcomes, policy, bundle), residuals)

    def at(self, false_reject_rate: float) -> "Decision":
        """The same at another rate: nothing is fitted again."""
        return replace(self, rule=self.rule.at(false_reject_rate))

    def predict(self, outputs: GraphOutputs, out_of_range: Array | None = None) -> Prediction:
        """From outputs and their variances to probabilities, score and decision.

        What is not finite is rejected. out_of_range (B,) bool, as in `Prediction`.
        """
        found = self.predictive.values(outputs)
        finite = finite_rows(outputs.mean, found.get("std", outputs.variance), found["score"][:, np.newaxis])
        found["score"] = found["score"] if finite.all() else np.where(finite, found["score"], np.inf)
        p_value, rejected = self._decided(found["score"], found.get("probabilities"))
        # Reject what is not finite even where the threshold is infinite.
        return Prediction(**found, p_value=p_value, rejected=rejected | ~finite, out_of_range=out_of_range)

    def again(self, prediction: Prediction) -> Prediction:
        """A prediction by another decision over the same calibration scores, decided by this one."""
        p_value, rejected = self._decided(prediction.score, prediction.probabilities)
        return replace(prediction, p_value=p_value, rejected=rejected | ~prediction.finite)

    def _decided(self, score: Array, probabilities: Array | None) -> tuple[Array, Array]:
        """p-values and verdicts, (B,) both."""
        if not isinstance(self.rule, ClassRules):
            return self.rule.p_value(score), self.rule.rejected(score)
        assert probabilities is not None  # of a classification
        labels = probabilities.argmax(axis=1)
        return self.rule.p_values(score, labels), np.asarray(score > self.rule.thresholds(labels))

    def thresholds(self, prediction: Prediction) -> Array:
        """(B,): the largest score that would have been accepted, of each example."""
        if not isinstance(self.rule, ClassRules):
            return np.full(len(prediction), self.rule.threshold)
        assert prediction.probabilities is not None  # of a classification
        return np.asarray(self.rule.thresholds(prediction.probabilities.argmax(axis=1)))

    def members(self, prediction: Prediction) -> Array:
        """Which classes belong to each prediction set, (B, K) bool; of labels, whether not having each and having it
        do, (B, K, 2). `ValueError` of a regression."""
        if self.sets is None:
            raise ValueError("members: found a bundle without prediction sets, as of a regression; ask for intervals")
        assert prediction.probabilities is not None
        return self.sets.members(prediction.probabilities, self.policy.interval_level)

    @functools.cached_property
    def usual_classes(self) -> list[int]:
        """The places of all classes, those first that the held-out examples got most often."""
        known = self.outcomes.calibration.predicted if isinstance(self.outcomes, ClassOutcomes) else ()
        counts = np.bincount(np.asarray(known, np.intp), minlength=self.manifest.outputs)
        order: list[int] = np.argsort(-counts, kind="stable").tolist()
        return order

    @functools.cached_property
    def interval_kind(self) -> str:
        """Which intervals the bundle gives at the policy's level: `conformal` or `gaussian`."""
        known = self.residuals
        return "gaussian" if known is None or known.half_widths(self.policy.interval_level) is None else "conformal"

    def intervals(self, prediction: Prediction) -> tuple[Array, Array]:
        """Their ends, (B, K) both; `ValueError` of a classification."""
        if prediction.std is None:
            raise ValueError("intervals: found a classification, which has none; ask for members")
        mean, std, level = prediction.mean, prediction.std, self.policy.interval_level
        found = None if self.residuals is None else self.residuals.around(mean, std, level)
        return gaussian_interval(mean, std, level) if found is None else found

    @functools.cached_property
    def expected_accuracy(self) -> float | None:
        """What share of the accepted is right, as labelled answers should show; None where it is not known.

        Of a classification: the accuracy that the rule certifies, or else the lower bound of Clopper and Pearson
        (1934), at a confidence of 95 %, on that of the held-out examples which the rule accepts.

        Of a regression: the share of truths that conformal intervals hold at least, with the same confidence. Intervals
        hold a share of `level` on average over held-out data. Given these, with the k-th smallest of n residuals as
        half-width, the share is Beta(k, n + 1 - k) distributed (Vovk, 2012); this is its 5 % quantile. Outputs have as
        many residuals each.
        """
        if isinstance(self.rule, CertifiedRule):
            return self.rule.certificate.accuracy
        if self.residuals is not None:
            n, level = len(self.residuals.residuals), self.policy.interval_level
            conformal = self.interval_kind == "conformal"
            return 1 - share_bound(n, n + 1 - conformal_rank(n, level), CONFIDENCE) if conformal else None
        assert isinstance(self.outcomes, ClassOutcomes)
        held_out, accepted = self.outcomes.calibration, self._accepts(self.outcomes.calibration)
        count, errors = int(np.count_nonzero(accepted)), int(np.count_nonzero(accepted & ~held_out.correct))
        return 1 - share_bound(count, errors + 1, CONFIDENCE) if count else None

    @functools.cached_property
    def held_out(self) -> dict[str, HeldOutAccuracy]:
        """By which the accuracy on new data is estimated, of the `accepted` and of `all`; nothing of a regression, or
        of a bundle that does not say how sure it was."""
        if not isinstance(self.outcomes, ClassOutcomes) or self.outcomes.confidences is None:
            return {}
        known, confidences = self.outcomes.calibration, self.outcomes.confidences
        which = {"accepted": self._accepts(known), "all": np.ones(len(known), bool)}
        found = {name: HeldOutAccuracy.of(confidences[those], known.correct[those]) for name, those in which.items()}
        return {name: one for name, one in found.items() if one is not None}

    def _accepts(self, held_out: Verdicts) -> Array:
        """Which of the held-out examples the rule accepts, (n,) bool."""
        rule = self.rule
        thresholds = rule.thresholds(held_out.predicted) if isinstance(rule, ClassRules) else rule.threshold
        return np.asarray(held_out.scores <= thresholds)


def _rule(own: RejectionRule, outcomes: Outcomes, policy: Policy, bundle: Bundle) -> Rule:
    """`own`: the bundle's rule, over all its scores."""
    if policy.accepted_accuracy is not None:
        return _certified(own, _needed(outcomes, "accepted_accuracy", bundle), policy.accepted_accuracy, bundle)
    rate = policy.false_reject_rate
    rule = own if rate is None else _at_rate(own, rate, bundle)
    if not policy.reject_by_class:
        return rule
    known, least = _one_class(outcomes, "reject_by_class", bundle), minimum_calibration_examples(rule.false_reject_rate)
    classes = bundle.manifest.outputs
    return ClassRules.of(known.calibration, known.tuning, classes, rule.false_reject_rate, max(LEAST_EXAMPLES, least))


def _certified(own: RejectionRule, outcomes: ClassOutcomes, accuracy: float, bundle: Bundle) -> CertifiedRule:
    if outcomes.tuning is None:
        raise BundleError(
            bundle.path,
            "accepted_accuracy: found no held-out examples that tune, by which the order of the tests is chosen",
            "fit the bundle with prior_precision='budget' or another method that tunes",
        )
    try:
        return CertifiedRule.of(own, certify(outcomes.calibration, outcomes.tuning, accuracy, CONFIDENCE))
    except NotCertified as error:
        more = "many" if error.missing is None else f"about {error.missing}"
        remedy = f"lower accepted_accuracy, or fit it with {more} more held-out examples"
        raise BundleError(bundle.path, f"accepted_accuracy: {error}", remedy) from None


def _one_class(outcomes: Outcomes, name: str, bundle: Bundle) -> ClassOutcomes:
    if isinstance(outcomes, LabelOutcomes):
        problem = f"{name}: found several labels an example, expected one class"
        raise BundleError(bundle.path, problem, f"serve it without {name}")
    return _needed(outcomes, name, bundle)


def _needed(outcomes: Outcomes, name: str, bundle: Bundle) -> ClassOutcomes:
    if isinstance(outcomes, ClassOutcomes):
        return outcomes
    problem = f"{name}: found a regression, expected a classification"
    raise BundleError(bundle.path, problem, f"serve it without {name}")


def _at_rate(rule: RejectionRule, rate: float, bundle: Bundle) -> RejectionRule:
    if not rule.least_rate <= rate < 1:
        found = f"false_reject_rate: found {rate:g} for a bundle with {len(rule.scores)} calibration scores"
        raise BundleError(
            bundle.path, f"{found}, expected {rule.least_rate:.3g} to 1", "give another rate, or fit anew"
        )
    return rule.at(rate)


def _sets(outcomes: Outcomes, policy: Policy, bundle: Bundle) -> PredictionSets | LabelSets | None:
    score, by_class = bundle.manifest.calibration.outcomes.set_score, policy.sets_by_class
    known = _one_class(outcomes, "sets_by_class", bundle) if by_class else None
    if isinstance(outcomes, LabelOutcomes):
        return LabelSets(outcomes.set_scores)
    if not isinstance(outcomes, ClassOutcomes) or score is None:
        return None
    if known is None:
        return PredictionSets(outcomes.set_scores, score.penalty, score.unpenalised)
    if known.classes is None:
        problem = "sets_by_class: found no true classes of the held-out examples, expected the tensor 'classes'"
        raise BundleError(bundle.path, problem, "fit the bundle anew, or serve it without sets_by_class")
    return ClassSets(known.set_scores, score.penalty, score.unpenalised, known.classes, bundle.manifest.outputs)


def _check_threshold(rule: RejectionRule, stated: float, bundle: Bundle) -> None:
    found = rule.threshold
    if not math.isclose(stated, found, rel_tol=1e-9, abs_tol=1e-12):
        problem = f"calibration.threshold: found {stated}, the calibration scores give {found}"
        raise BundleError(bundle.path / MANIFEST, problem)
