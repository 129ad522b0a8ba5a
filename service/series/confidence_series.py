"""The series of one model by which its accuracy is estimated without labels."""

from collections.abc import Mapping

from ..inference.decision import Decision
from ..inference.prediction import Prediction
from ..maths.estimated_accuracy import HeldOutAccuracy, confidence
from ..monitoring.metrics import Metrics

DECISIONS = ("accepted", "rejected")


class ConfidenceSeries:
    """None of a regression, whose answers have no probability to be right. `announce` says what held-out data showed,
    until `withdraw`; `remove` ends what was counted."""

    def __init__(self, metrics: Metrics, model: tuple[str, str], decision: Decision) -> None:
        self._metrics, self._model = metrics, model
        self._held_out: Mapping[str, HeldOutAccuracy] = decision.held_out
        self._decisions = DECISIONS if decision.manifest.task != "regression" else ()
        self._counters = [
            (metrics.decided_examples.labels(*model, name), metrics.decided_confidence.labels(*model, name))
            for name in self._decisions
        ]

    def announce(self) -> None:
        """Show what held-out data showed."""
        for name, found in self._held_out.items():
            for gauge, value in zip(self._metrics.of_held_out, (found.excess, found.low, found.high), strict=True):
                gauge.labels(*self._model, name).set(value)

    def withdraw(self) -> None:
        """Show it no longer."""
        for name in self._held_out:
            for gauge in self._metrics.of_held_out:
                gauge.remove(*self._model, name)

    def count(self, prediction: Prediction) -> None:
        """Count the answers by what was decided."""
        if prediction.probabilities is None:
            return
        found, rejected = confidence(prediction.probabilities, prediction.multilabel), prediction.rejected
        for (examples, total), those in zip(self._counters, (~rejected, rejected), strict=True):
            examples.inc(int(those.sum()))
            total.inc(float(found[those].sum()))

    def remove(self) -> None:
        """Remove what was counted."""
        for name in self._decisions:
            self._metrics.decided_examples.remove(*self._model, name)
            self._metrics.decided_confidence.remove(*self._model, name)
