"""Decide without a bundle: outputs by a manifest, a rule and a score."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from demur.service.bundle import Manifest
from demur.service.inference.decision import Decision, Rule
from demur.service.inference.graph import GraphOutputs
from demur.service.inference.policy import Policy
from demur.service.inference.prediction import Prediction, Predictive
from demur.service.maths.outcomes import RegressionOutcomes
from demur.service.maths.rejection import RejectionRule
from demur.service.maths.scores import NO_FEATURES, Scoring

Array = npt.NDArray[Any]


def decision_of(manifest: Manifest, rule: Rule, scoring: Scoring | None = None) -> Decision:
    """Without outcomes: no sets, no intervals."""
    pooled = rule if isinstance(rule, RejectionRule) else RejectionRule(np.zeros(1), rule.false_reject_rate)
    none = RegressionOutcomes(np.zeros((0, 1)))
    return Decision(manifest, Policy(), Predictive.of(manifest, scoring), rule, pooled, none, None, None)


def decide(
    mean: Array,
    variance: Array,
    manifest: Manifest,
    rule: Rule,
    scoring: Scoring | None = None,
    features: Mapping[str, Array] = NO_FEATURES,
) -> Prediction:
    """The prediction of these outputs."""
    return decision_of(manifest, rule, scoring).predict(GraphOutputs(mean, variance, features))
