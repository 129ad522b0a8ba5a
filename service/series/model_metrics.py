"""The metrics of one loaded model, with a counter for each class. Its series are looked up once, not for each
request."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from prometheus_client import Counter

from ..batching import Batch
from ..inference.predictor import Prediction, Predictor
from ..maths.exchangeability import DriftTest
from ..monitoring.metrics import FINISHING, REMOVED, SERVING, Metrics, several_processes
from .confidence_series import ConfidenceSeries
from .drift_sample import DriftSample
from .feedback_series import FeedbackSeries

MOST_CLASSES = 100
OTHERS = "other classes"


class ClassCounters:
    """Counts examples by the place of their class in `labels`. make: the counter of one label, which begins at zero.

    Of more than `MOST_CLASSES`, the `usual` ones have a counter each, the same in every process, and all others one
    together: a thousand classes would be most of what is scraped.
    """

    def __init__(self, labels: Sequence[str], make: Callable[[str], Counter], usual: Sequence[int] = ()) -> None:
        few = len(labels) <= MOST_CLASSES
        shown = range(len(labels)) if few else usual[:MOST_CLASSES]
        self._labels, self._counters = labels, {k: make(labels[k]) for k in shown}
        self._others = None if few else make(OTHERS)

    def add(self, classes: npt.NDArray[np.intp]) -> None:
        """Count each of the examples, (B,), under its class."""
        counts = np.bincount(classes, minlength=1)
        for k in np.flatnonzero(counts).tolist():
            counter = self._counters.get(k) or self._others
            assert counter is not None
            counter.inc(int(counts[k]))

    def names(self) -> Iterable[str]:
        """The labels that have a counter."""
        yield from (self._labels[k] for k in self._counters)
        if self._others is not None:
            yield OTHERS


Array = npt.NDArray[Any]
SOON_SECONDS = 0.05
DRIFT_LEVEL = 100.0  # an alarm without drift has a probability of 1 %


class ModelMetrics:
    """One model's series: `announce` on load, `withdraw` when it takes no new requests, `finish` after the last answer,
    and `remove` where no other bundle has its name and version."""

    def __init__(self, metrics: Metrics, predictor: Predictor, workers: int = 1) -> None:
        """`workers`: how many processes test for drift and accuracy, each with its part of the requests."""
        self._metrics, self._predictor = metrics, predictor
        self.drift = DriftTest(predictor.decision.pooled.scores, DRIFT_LEVEL * workers)
        self._drift_sample = DriftSample(predictor.decision.pooled.scores)
        manifest = predictor.manifest
        self._model = model = (manifest.name, manifest.version)
        # Examples are counted once each: with several labels or values, under the name of the task.
        self._labels = manifest.labels if manifest.task == "classification" else (manifest.task,)

        def counted(make: Callable[[str], Counter]) -> ClassCounters:
            return ClassCounters(self._labels, make, predictor.decision.usual_classes)

        self._predictions = counted(lambda label: metrics.predictions.labels(*model, label))
        self._rejections = counted(lambda label: metrics.rejections.labels(*model, "score", label))
        mistakes = manifest.mistakes
        self._mistakes = ClassCounters(mistakes, lambda name: metrics.mistakes.labels(*model, name))
        self._out_of_range = metrics.out_of_range.labels(*model)
        self._drift_evidence = metrics.drift_evidence.labels(*model)
        self._drift_alarms = metrics.drift_alarms.labels(*model)
        self.feedback = FeedbackSeries(metrics.feedback, model, predictor.decision.expected_accuracy, workers)
        self.confidence = ConfidenceSeries(metrics, model, predictor.decision)
        self._queue_rows = metrics.queue_rows.labels(*model)
        self._queue_seconds = metrics.queue_seconds.labels(*model)
        self._compute_seconds = metrics.compute_seconds.labels(*model)
        self._p_value = metrics.p_value.labels(*model)
        self._answered: list[tuple[Prediction, float]] = []

    def announce(self) -> None:
        """Set the model's identity and its rates; its counters start at zero."""
        metrics, predictor, model = self._metrics, self._predictor, self._model
        metrics.loads.labels(model[0], "success").inc()
        metrics.loads.labels(model[0], "failure")
        metrics.stale.labels(model[0])  # 0, unless a folder of this model was refused
        metrics.info.labels(*model, predictor.digest).set(SERVING)
        metrics.serving[model] = predictor.digest
        metrics.false_reject_rate.labels(*model).set(predictor.decision.pooled.false_reject_rate)
        metrics.false_reject_rate_bound.labels(*model).set(predictor.decision.pooled.rate_bound())
        self.feedback.announce()
        self.confidence.announce()

    def withdraw(self) -> None:
        """Remove what describes the model; what it counts stays until its last request is answered."""
        metrics, model = self._metrics, self._model
        self._queue_rows.set(0)
        if several_processes():
            metrics.info.labels(*model, self._predictor.digest).set(FINISHING)
        else:
            metrics.info.remove(*model, self._predictor.digest)
        if metrics.serving.get(model) != self._predictor.digest:  # another bundle of this name and version serves
            return
        del metrics.serving[model]
        if not several_processes():
            self._remove_descriptions()

    def _remove_descriptions(self) -> None:
        for gauge in self._metrics.descriptions:
            gauge.remove(*self._model)
        self.feedback.withdraw()
        self.confidence.withdraw()

    def finish(self) -> None:
        """Count the last requests, and mark the model as removed."""
        self.count()
        if several_processes() and self._metrics.serving.get(self._model) != self._predictor.digest:
            self._metrics.info.labels(*self._model, self._predictor.digest).set(REMOVED)

    def remove(self) -> None:
        """Remove every series, so that versions that came and went do not pile up.

        With several processes the series are in files, and a scrape leaves them out:
        `demur.service.monitoring.exposition`.
        """
        if several_processes():
            return
        metrics, model = self._metrics, self._model
        self.feedback.remove()
        self.confidence.remove()
        for one in metrics.measurements:
            one.remove(*model)
        for mistake in self._mistakes.names():
            metrics.mistakes.remove(*model, mistake)
        for label in self._rejections.names():
            metrics.rejections.remove(*model, "score", label)
        for label in self._predictions.names():
            metrics.predictions.remove(*model, label)

    def waiting(self, rows: int) -> None:
        """Set how many examples wait now."""
        self._queue_rows.set(rows)

    def batch_computed(self, batch: Batch) -> None:
        """Count one batch, and its time."""
        self._compute_seconds.observe(batch.compute_seconds)

    def answered(self, prediction: Prediction, queue_seconds: float, inputs: Array) -> None:
        """Count one answered request, with inputs (B, *input_shape), within `SOON_SECONDS`, in one go with others; call
        it in the event loop."""
        self._drift_sample.offer(inputs, prediction.score)
        if not self._answered:
            asyncio.get_running_loop().call_later(SOON_SECONDS, self.count)
        self._answered.append((prediction, queue_seconds))

    def count(self) -> None:
        """Count every example answered since the last call."""
        answered, self._answered = self._answered, []
        if not answered:
            return
        for _, seconds in answered:
            self._queue_seconds.observe(seconds)
        outside = [one.out_of_range for one, _ in answered if one.out_of_range is not None]
        self._out_of_range.inc(sum(int(np.count_nonzero(one)) for one in outside))
        self._count(answered[0][0] if len(answered) == 1 else Prediction.concatenate([one for one, _ in answered]))

    def _count(self, prediction: Prediction) -> None:
        classes = self._classes(prediction.probabilities, len(prediction))
        self._predictions.add(classes)
        self._rejections.add(classes[prediction.rejected])
        if prediction.mistake is not None:
            self._mistakes.add(prediction.mistake[prediction.mistake >= 0])
        self.confidence.count(prediction)
        if alarms := self.drift.observe(self._drift_sample.take()):
            self._drift_alarms.inc(alarms)
        self._drift_evidence.set(self.drift.evidence)
        self._p_value.observe(prediction.p_value)

    def _classes(self, probabilities: npt.NDArray[Any] | None, examples: int) -> npt.NDArray[np.intp]:
        """The most probable class of each example, (B, K) -> (B,); 0 where the task has no classes."""
        if probabilities is None or len(self._labels) == 1:
            return np.zeros(examples, np.intp)
        found: npt.NDArray[np.intp] = probabilities.argmax(axis=1)
        return found
