"""service/series/feedback_series.py: what processes show of their tests adds up to the mean of their values."""

import numpy as np
import pytest
from prometheus_client import CollectorRegistry

from demur.service.feedback.answers import Decision, Outcomes
from demur.service.maths.accuracy_evidence import AccuracyTest
from demur.service.monitoring.feedback_metrics import FeedbackMetrics
from demur.service.series.feedback_series import FeedbackSeries

MODEL = ("digits", "1")
LABELS = dict(zip(("model", "version"), MODEL, strict=True))


class Process:
    """One of two worker processes, with metrics of its own."""

    def __init__(self, expected: float | None = 0.9) -> None:
        self.registry = CollectorRegistry()
        self.series = FeedbackSeries(FeedbackMetrics(self.registry), MODEL, expected, workers=2)

    def count(self, errors: list[float], new: list[bool] | None = None) -> None:
        values = np.array(errors)
        outcomes = Outcomes(1 - np.nan_to_num(values), np.full(len(errors), 0.75), np.zeros(len(errors)))
        decisions = np.where(np.isnan(values), Decision.REJECTED, Decision.ACCEPTED).astype(np.uint8)
        self.series.count(outcomes, decisions, values, np.ones(len(errors), bool) if new is None else np.array(new))

    def value(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(f"demur_{name}", LABELS | labels)


def value_after(*errors: float) -> float:
    test = AccuracyTest(0.9)
    test.observe(errors)
    return test.value


def test_the_sum_over_processes_is_the_mean_of_their_values() -> None:
    one, other = Process(), Process()
    assert (one.value("accuracy_martingale"), other.value("accuracy_martingale")) == (0.5, 0.5)
    one.count([1, 1, 0])
    one.count([1])
    other.count([0])
    shown = [process.value("accuracy_martingale") or 0 for process in (one, other)]
    assert sum(shown) == pytest.approx((value_after(1, 1, 0, 1) + value_after(0)) / 2)


def test_labels_that_came_before_and_rejected_examples_are_not_tested() -> None:
    process = Process()
    process.count([1, np.nan, 1], new=[True, True, False])
    assert process.value("accuracy_martingale") == pytest.approx(value_after(1) / 2)
    counts = [process.value("feedback_examples_total", decision=name) for name in ("accepted", "rejected")]
    assert counts == [1, 1]
    assert process.value("feedback_bin_confidence_total", confidence="0.8") == 1.5


def test_without_an_expected_accuracy_there_is_no_evidence() -> None:
    process = Process(None)
    process.count([1] * 100)
    assert process.value("accuracy_martingale") == 0.5
    assert process.value("expected_accuracy") is None


def test_all_series_end_with_the_model() -> None:
    process = Process()
    process.series.announce()
    process.count([1, 0])
    process.series.withdraw()
    process.series.remove()
    assert not [sample for family in process.registry.collect() for sample in family.samples]
