"""service/maths/certified.py: a certificate holds as often as it says, and is refused where it cannot be given."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from demur.service.maths.certified import CertifiedRule, NotCertified, accepted_needed, certify, p_value
from demur.service.maths.outcomes import Verdicts
from demur.service.maths.rejection import RejectionRule, binomial_below
from tests import reference

Array = npt.NDArray[Any]


def verdicts(rng: np.random.Generator, count: int, steep: float = 0.4) -> Verdicts:
    """Scores uniform in [0, 1); an example of score s is wrong with probability `steep` s^2."""
    scores = np.sort(rng.random(count))
    return Verdicts(scores, np.zeros(count, np.int32), rng.random(count) > steep * scores**2)


def true_error(threshold: float, steep: float = 0.4) -> float:
    """The mean of `steep` s^2 over s uniform in [0, threshold]."""
    return steep * threshold**2 / 3


@given(st.integers(1, 60), st.data(), st.floats(0.001, 0.999))
def test_the_tail_is_the_sum_of_its_terms(n: int, data: st.DataObject, x: float) -> None:
    k = data.draw(st.integers(1, n + 1))
    assert binomial_below(n, k, x) == pytest.approx(reference.binomial_below(n, k, x), rel=1e-9, abs=1e-300)


def test_far_above_the_mean_everything_is_below() -> None:
    assert binomial_below(1_000_000, 500_000, 0.01) == 1.0
    assert binomial_below(1_000_000, 10_000, 0.01) == pytest.approx(0.5, abs=0.01)


@pytest.mark.parametrize(("errors", "needed"), [(0, 299), (3, 773)])
def test_how_many_certify_99_per_cent(errors: int, needed: int) -> None:
    assert accepted_needed(errors, 0.99, 0.95) == needed
    assert p_value(needed, errors, 0.99) <= 0.05 < p_value(needed - 1, errors, 0.99)


def test_certificates_hold_as_often_as_they_say() -> None:
    rng, accuracy, confidence, wrong, given_out, thresholds = np.random.default_rng(3), 0.97, 0.9, 0, 0, []
    for _ in range(600):
        try:
            found = certify(verdicts(rng, 1500), verdicts(rng, 1500), accuracy, confidence)
        except NotCertified:
            continue
        given_out += 1
        wrong += true_error(found.threshold) > 1 - accuracy
        thresholds.append(found.threshold)
    assert given_out > 500
    assert wrong / 600 < 0.1 + 3 * np.sqrt(0.1 * 0.9 / 600)
    assert np.mean(thresholds) > 0.35  # 0.47 would be right: nothing is given away for nothing


def test_the_certificate_says_what_was_seen() -> None:
    rng = np.random.default_rng(4)
    calibration, tuning = verdicts(rng, 2000), verdicts(rng, 2000)
    found = certify(calibration, tuning, 0.95, 0.95)
    accepted = calibration.scores <= found.threshold
    assert (found.accuracy, found.confidence) == (0.95, 0.95)
    assert found.accepted == accepted.sum()
    assert found.errors == (accepted & ~calibration.correct).sum()
    assert found.threshold in tuning.scores


def test_too_few_examples_are_refused_with_the_number_that_is_missing() -> None:
    scores = np.linspace(0, 1, 200)
    all_right = Verdicts(scores, np.zeros(200, np.int32), np.ones(200, bool))
    expected = r"found 0 errors among 200 of 200 .* expected 299 .* 99 % with a confidence of 95 %$"
    with pytest.raises(NotCertified, match=expected) as refused:
        certify(all_right, all_right, 0.99, 0.95)
    assert refused.value.missing == 99


def test_too_many_errors_are_refused() -> None:
    scores = np.linspace(0, 1, 200)
    half = Verdicts(scores, np.zeros(200, np.int32), np.arange(200) % 2 == 1)
    with pytest.raises(NotCertified, match="too many to certify 99 %"):
        certify(half, half, 0.99, 0.95)


def test_the_rule_accepts_what_is_certified_and_keeps_its_p_values() -> None:
    rng = np.random.default_rng(5)
    calibration, tuning = verdicts(rng, 1000), verdicts(rng, 1000)
    own = RejectionRule(calibration.scores, 0.05)
    found = certify(calibration, tuning, 0.95, 0.95)
    rule, new = CertifiedRule.of(own, found), np.linspace(0, 1, 50)
    np.testing.assert_array_equal(rule.rejected(new), new > found.threshold)
    np.testing.assert_array_equal(rule.p_value(new), own.p_value(new))
    assert rule.threshold == found.threshold
    assert rule.false_reject_rate == pytest.approx((1001 - found.accepted) / 1001)
    assert rule.at(0.05) == own
    assert rule.rate_bound() > rule.false_reject_rate
