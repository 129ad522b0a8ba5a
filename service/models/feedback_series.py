"""The series of one model that count its labelled answers."""

import numpy as np
import numpy.typing as npt

from probity.service.feedback.answers import Decision, Outcomes
from probity.service.maths.accuracy_evidence import AccuracyEvidence
from probity.service.monitoring.feedback_metrics import FeedbackMetrics

BINS = 10
UPPER = [f"{(number + 1) / BINS:g}" for number in range(BINS)]


class FeedbackSeries:
    """They start at zero when the model is loaded; `remove` ends them. expected: the accuracy that is tested, None
    where no test is possible."""

    def __init__(self, metrics: FeedbackMetrics, model: tuple[str, str], expected: float | None) -> None:
        self._metrics, self._model, self._expected = metrics, model, expected
        names = [decision.name.lower() for decision in Decision]
        self._examples = [metrics.examples.labels(*model, name) for name in names]
        self._correct = [metrics.correct.labels(*model, name) for name in names]
        self._squared_error = [metrics.squared_error.labels(*model, name) for name in names]
        self._bin_correct = [metrics.bin_correct.labels(*model, bound) for bound in UPPER]
        self._bin_confidence = [metrics.bin_confidence.labels(*model, bound) for bound in UPPER]
        self._alarms = metrics.alarms.labels(*model)
        self._evidence = metrics.evidence.labels(*model)

    def announce(self) -> None:
        """Show the expected accuracy."""
        if self._expected is not None:
            self._metrics.expected.labels(*self._model).set(self._expected)

    def withdraw(self) -> None:
        """Show it no longer."""
        if self._expected is not None:
            self._metrics.expected.remove(*self._model)

    def count(self, outcomes: Outcomes, decisions: npt.NDArray[np.uint8], new: npt.NDArray[np.bool_]) -> None:
        """Count the answers that are `new`, (B,) bool."""
        correct, confidence = outcomes.correct[new], outcomes.confidence[new]
        errors, decided = outcomes.squared_error[new], decisions[new]
        for decision in Decision:
            own = decided == decision
            self._examples[decision].inc(int(np.count_nonzero(own)))
            self._correct[decision].inc(float(correct[own].sum()))
            self._squared_error[decision].inc(float(errors[own].sum()))
        bins = np.clip(np.ceil(confidence * BINS).astype(int) - 1, 0, BINS - 1)
        for number in np.unique(bins).tolist():
            own = bins == number
            self._bin_correct[number].inc(float(correct[own].sum()))
            self._bin_confidence[number].inc(float(confidence[own].sum()))

    def show(self, test: AccuracyEvidence) -> None:
        """Show how the sequential test stands."""
        self._evidence.set(test.log10_capital)
        self._alarms.inc(test.alarms)

    def remove(self) -> None:
        """Remove every series."""
        metrics, model = self._metrics, self._model
        for decision in Decision:
            for counter in (metrics.examples, metrics.correct, metrics.squared_error):
                counter.remove(*model, decision.name.lower())
        for bound in UPPER:
            metrics.bin_correct.remove(*model, bound)
            metrics.bin_confidence.remove(*model, bound)
        metrics.alarms.remove(*model)
        metrics.evidence.remove(*model)
