"""The metrics of one loaded model: its series, found once, so that counting a request looks nothing up."""

import asyncio
import math
from typing import Any

import numpy as np
import numpy.typing as npt
from prometheus_client import Histogram

from service.answers import class_names
from service.batching import Batch
from service.bundle import REFERENCE_LEVELS
from service.metrics import Metrics, several_processes
from service.predictor import PlainPrediction, Prediction, Predictor

SOON_SECONDS = 0.05
FEW = 8  # so many values are observed one by one as quickly as together


class ModelMetrics:
    """What is counted of one model. `announce` it when it is loaded, and `withdraw` it when it no longer serves."""

    def __init__(self, metrics: Metrics, predictor: Predictor) -> None:
        self._metrics, self._predictor = metrics, predictor
        manifest = predictor.manifest
        self._model = model = (manifest.name, manifest.version)
        self._labels = class_names(manifest) if manifest.task == "classification" else ["regression"]
        self._predictions = [metrics.predictions.labels(*model, label) for label in self._labels]
        self._rejections = metrics.rejections.labels(*model, "score")
        self._degraded = metrics.degraded.labels(*model)
        self._queue_rows = metrics.queue_rows.labels(*model)
        self._queue_seconds = metrics.queue_seconds.labels(*model)
        self._compute_seconds = metrics.compute_seconds.labels(*model)
        self._batch_rows = metrics.batch_rows.labels(*model)
        self._variance, self._score = metrics.variance.labels(*model), metrics.score.labels(*model)
        self._p_value = metrics.p_value.labels(*model)
        self._top_probability = metrics.top_probability.labels(*model)
        self._entropy = metrics.normalised_entropy.labels(*model)
        self._answered: list[tuple[Prediction | PlainPrediction, float]] = []

    def announce(self) -> None:
        """The model's identity and its reference values; its series stand at zero."""
        metrics, predictor, model = self._metrics, self._predictor, self._model
        metrics.loads.labels(model[0], "success").inc()
        metrics.loads.labels(model[0], "failure")
        metrics.stale.labels(model[0]).set(0)
        metrics.info.labels(*model, predictor.digest).set(1)
        metrics.false_reject_rate.labels(*model).set(predictor.rule.false_reject_rate)
        metrics.threshold.labels(*model).set(predictor.rule.threshold)
        for quantity, values in predictor.reference.items():
            for level, value in zip(REFERENCE_LEVELS, values.tolist(), strict=True):
                metrics.reference.labels(*model, quantity, str(level)).set(value)

    def withdraw(self) -> None:
        """Its counters stay, as counters do; it is no longer among the loaded ones."""
        self._metrics.info.labels(*self._model, self._predictor.digest).set(0)
        self._queue_rows.set(0)

    def remove(self) -> None:
        """Nothing of its name and version is served any more: its series go, or a service that was given a new version
        every day would hold those of all days. With several processes they stay, as they are in files."""
        self.count()
        if several_processes():
            return
        metrics, predictor, model = self._metrics, self._predictor, self._model
        for one in metrics.per_version:
            one.remove(*model)
        metrics.info.remove(*model, predictor.digest)
        metrics.rejections.remove(*model, "score")
        for label in self._labels:
            metrics.predictions.remove(*model, label)
        for quantity in predictor.reference:
            for level in REFERENCE_LEVELS:
                metrics.reference.remove(*model, quantity, str(level))

    def waiting(self, rows: int) -> None:
        """How many examples wait now."""
        self._queue_rows.set(rows)

    def batch_computed(self, batch: Batch) -> None:
        """Time and size of one batch."""
        self._compute_seconds.observe(batch.compute_seconds)
        self._batch_rows.observe(batch.rows)

    def answered(self, prediction: Prediction | PlainPrediction, queue_seconds: float) -> None:
        """Count one request that was answered, in the running event loop: soon, together with others."""
        if not self._answered:
            asyncio.get_running_loop().call_later(SOON_SECONDS, self.count)
        self._answered.append((prediction, queue_seconds))

    def count(self) -> None:
        """Count now what was answered since the last time, example by example."""
        answered, self._answered = self._answered, []
        if not answered:
            return
        _observe(self._queue_seconds, np.array([seconds for _, seconds in answered]))
        self._degraded.inc(sum(len(one) for one, _ in answered if isinstance(one, PlainPrediction)))
        predictions = [one for one, _ in answered if isinstance(one, Prediction)]
        if predictions:
            self._count(predictions[0] if len(predictions) == 1 else Prediction.concatenate(predictions))

    def _count(self, prediction: Prediction) -> None:
        self._rejections.inc(int(np.count_nonzero(prediction.rejected)))
        _observe(self._variance, prediction.variance.max(axis=1))
        _observe(self._score, prediction.score)
        _observe(self._p_value, prediction.p_value)
        if prediction.probabilities is None or prediction.total is None:
            self._predictions[0].inc(len(prediction))
            return
        _observe(self._top_probability, prediction.probabilities.max(axis=1))
        _observe(self._entropy, prediction.total / math.log(len(self._labels)))
        counts = np.bincount(prediction.probabilities.argmax(axis=1), minlength=len(self._labels))
        for k in np.flatnonzero(counts).tolist():
            self._predictions[k].inc(int(counts[k]))


def _observe(histogram: Histogram, values: npt.NDArray[Any]) -> None:
    """As `histogram.observe` of each value, at the cost of a few.

    prometheus-client has no public call for many values; its sum and its buckets (each counts what is above the one
    before) are those that its own `observe` adds to.
    """
    if len(values) < FEW:
        for value in values.tolist():
            histogram.observe(value)
        return
    histogram._sum.inc(float(values.sum()))
    counts = np.bincount(np.searchsorted(histogram._upper_bounds, values))
    for i in np.flatnonzero(counts).tolist():
        histogram._buckets[i].inc(int(counts[i]))
