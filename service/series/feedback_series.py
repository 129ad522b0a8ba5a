"""The series of one model that count its labelled answers, and the test of its accuracy."""

import numpy as np
from prometheus_client import Counter

from ..feedback.answers import Array, Decision, Outcomes
from ..maths.accuracy_evidence import AccuracyTest
from ..monitoring.feedback_metrics import FeedbackMetrics

BINS = 10


class FeedbackSeries:
    """They start at zero when the model is loaded; `remove` ends them. expected: the accuracy that is tested, None
    where no test is possible. workers: how many processes test, each with its part of the evidence."""

    def __init__(
        self, metrics: FeedbackMetrics, model: tuple[str, str], expected: float | None, workers: int = 1
    ) -> None:
        self._metrics, self._model, self._expected, self._workers = metrics, model, expected, workers
        self._test = None if expected is None else AccuracyTest(expected)
        decisions = [decision.name.lower() for decision in Decision]
        bounds = [f"{(number + 1) / BINS:g}" for number in range(BINS)]
        by_decision = dict.fromkeys((metrics.examples, metrics.correct, metrics.squared_error), decisions)
        self._labels = by_decision | dict.fromkeys((metrics.bin_correct, metrics.bin_confidence), bounds)
        self._counters = {
            counter: [counter.labels(*model, label) for label in labels] for counter, labels in self._labels.items()
        }
        self._show()

    def announce(self) -> None:
        """Show the expected accuracy."""
        if self._expected is not None:
            self._metrics.expected.labels(*self._model).set(self._expected)

    def withdraw(self) -> None:
        """Show it no longer."""
        if self._expected is not None:
            self._metrics.expected.remove(*self._model)

    def count(self, outcomes: Outcomes, decisions: Array, errors: Array, new: Array) -> None:
        """Count the answers that are `new`, (B,) bool, and test those whose `errors`, (B,), are not NaN."""
        metrics, correct, confidence = self._metrics, outcomes.correct[new], outcomes.confidence[new]
        bins = np.clip(np.ceil(confidence * BINS).astype(int) - 1, 0, BINS - 1)
        self._add(metrics.examples, decisions[new], np.ones(len(correct)))
        self._add(metrics.correct, decisions[new], correct)
        self._add(metrics.squared_error, decisions[new], outcomes.squared_error[new])
        self._add(metrics.bin_correct, bins, correct)
        self._add(metrics.bin_confidence, bins, confidence)
        if self._test is not None:
            self._test.observe(errors[new & ~np.isnan(errors)].tolist())
        self._show()

    def _add(self, counter: Counter, places: Array, values: Array) -> None:
        """Add the values, (n,), to the counter's series at `places`, (n,)."""
        for series, total in zip(self._counters[counter], np.bincount(places, values), strict=False):
            series.inc(float(total))

    def _show(self) -> None:
        value = 1.0 if self._test is None else self._test.value
        self._metrics.martingale.labels(*self._model).set(value / self._workers)

    def remove(self) -> None:
        """Remove every series."""
        for counter, labels in self._labels.items():
            for label in labels:
                counter.remove(*self._model, label)
        self._metrics.martingale.remove(*self._model)
