"""How often the alert on the reject rate fires though nothing has changed: over calibration sets and over traffic."""

import math

import numpy as np
import pytest

from demur.service.maths.rejection import RejectionRule
from tests.support.deployment import ALERTS

LEAST, ERRORS = 30, 4  # rejections, and standard errors of the share, as the alert has them


def test_the_alert_has_these_numbers() -> None:
    (alert,) = (rule["expr"] for rule in ALERTS if rule["alert"] == "DemurRejectRate")
    assert f">= {LEAST}" in alert
    assert f"+ {ERRORS} * sqrt(" in alert
    assert "> 2 * max by" in alert


@pytest.mark.parametrize("rate", [0.01, 0.05, 0.1])
@pytest.mark.parametrize("calibration", [19, 40, 180, 1000, 20_000])
def test_unchanged_data_fire_in_fewer_than_one_of_a_thousand_models(rate: float, calibration: int) -> None:
    """With n calibration scores, of which k are rejected, the rejections among N examples are beta-binomial."""
    betabinom = pytest.importorskip("scipy.stats").betabinom
    rule = RejectionRule(np.arange(calibration, dtype=np.float64), rate)
    k = int(np.count_nonzero(rule.scores >= rule.threshold))
    assert (k == 0) is (rate * (calibration + 1) < 1)  # too few for a threshold: nothing is rejected
    for examples in (50, 100, 300, 1000, 10_000) if k else ():
        bound = rule.rate_bound()
        bar = max(2 * rate, bound + ERRORS * math.sqrt(bound * (1 - bound) / examples))
        fires = max(LEAST, math.floor(bar * examples) + 1)
        assert betabinom.sf(fires - 1, examples, k, calibration + 1 - k) < 1e-3, examples
