"""Which rule decides: the bundle's own, at another rate, within each class, or the one that certifies an accuracy."""

from dataclasses import dataclass

from probity.service.bundle import Bundle, BundleError
from probity.service.maths.certified import CertifiedRule, NotCertified, certify
from probity.service.maths.class_rules import LEAST_EXAMPLES, ClassRules
from probity.service.maths.outcomes import ClassOutcomes, LabelOutcomes, Outcomes
from probity.service.maths.rejection import RejectionRule, minimum_calibration_examples

Rule = RejectionRule | ClassRules


@dataclass(frozen=True)
class Policy:
    """What an operator asks for; at most one of a rate and an accuracy, and no accuracy by class.

    false_reject_rate: in (0, 1), None: the bundle's own. by_class: whether it holds within each predicted class.
    accepted_accuracy: what share of the accepted must be right, with this confidence; None: no such demand.
    """

    false_reject_rate: float | None = None
    by_class: bool = False
    accepted_accuracy: float | None = None
    confidence: float = 0.95

    def __post_init__(self) -> None:
        if self.accepted_accuracy is not None and (self.false_reject_rate is not None or self.by_class):
            raise ValueError(
                "accepted_accuracy: found a false-reject rate or by_class beside it, expected one of them: the "
                "accuracy decides which scores are accepted"
            )
        for name, share in (("accepted_accuracy", self.accepted_accuracy), ("accepted_confidence", self.confidence)):
            if share is not None and not 0 < share < 1:
                raise ValueError(f"{name}: found {share:g}, expected a number between 0 and 1")


def deciding_rule(own: RejectionRule, outcomes: Outcomes, policy: Policy, bundle: Bundle) -> Rule:
    """`own`: the bundle's rule, over all its scores. Raises `BundleError` for what the bundle cannot give."""
    if policy.accepted_accuracy is not None:
        return _certified(own, _needed(outcomes, "accepted_accuracy", bundle), policy.accepted_accuracy, policy, bundle)
    rate = policy.false_reject_rate
    rule = own if rate is None else _at_rate(own, rate, bundle)
    if not policy.by_class:
        return rule
    if isinstance(outcomes, LabelOutcomes):
        problem = "by_class: found several labels an example, expected one class"
        raise BundleError(bundle.path, problem, "serve it without by_class")
    known, least = _needed(outcomes, "by_class", bundle), minimum_calibration_examples(rule.false_reject_rate)
    classes = bundle.manifest.outputs
    return ClassRules.of(known.calibration, known.tuning, classes, rule.false_reject_rate, max(LEAST_EXAMPLES, least))


def _certified(
    own: RejectionRule, outcomes: ClassOutcomes, accuracy: float, policy: Policy, bundle: Bundle
) -> CertifiedRule:
    if outcomes.tuning is None:
        raise BundleError(
            bundle.path,
            "accepted_accuracy: found no held-out examples that tune, by which the order of the tests is chosen",
            "fit the bundle with prior_precision='budget' or another method that tunes",
        )
    try:
        return CertifiedRule.of(own, certify(outcomes.calibration, outcomes.tuning, accuracy, policy.confidence))
    except NotCertified as error:
        remedy = "lower accepted_accuracy, or fit it with more held-out examples"
        raise BundleError(bundle.path, f"accepted_accuracy: {error}", remedy) from None


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
