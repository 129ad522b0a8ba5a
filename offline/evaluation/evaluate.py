"""Evaluate a bundle with the serving code on labelled test data, and on out-of-distribution data."""

from collections.abc import Iterable

import numpy as np
import torch

from offline.data.likelihood import class_log_likelihood, gaussian_log_likelihood, likelihood_of
from offline.data.loaders import Batches, checked_batches
from offline.evaluation.diagnostics import expected_calibration_error
from offline.runtime.arrays import Array
from service.inference.predictor import Prediction, Predictor, check_finite
from service.maths.predictive import entropy, gaussian_interval


def evaluate(predictor: Predictor, test: Batches, foreign: Batches | None = None) -> dict[str, float]:
    """Quality on test data and, given out-of-distribution data, how well the score tells them apart.

    Classification: accuracy, log-likelihood, Brier score and expected calibration error, each also for the plain
    network (`map_`). Regression: RMSE, log-likelihood, interval coverage. Both: reject rate; AUROC of the score, for
    classification also of the plain network's entropy.
    """
    manifest = predictor.manifest
    likelihood = likelihood_of(manifest.task, manifest.outputs)
    predictions, targets = [], []
    for inputs, raw in checked_batches(test, "test_data", torch.device("cpu")):
        predictions.append(_finite(predictor, inputs.numpy()))
        targets.append(likelihood.check_targets(raw, len(inputs)).numpy())
    y = np.concatenate(targets)
    metrics = _classification(predictions, y) if manifest.task == "classification" else _regression(predictions, y)
    metrics["reject_rate"] = float(_joined(predictions, "rejected").mean())
    if foreign is not None:
        metrics |= _against(predictions, predictor, foreign)
    return metrics


def _finite(predictor: Predictor, inputs: Array) -> Prediction:
    prediction = predictor.predict(inputs)
    check_finite(prediction)
    return prediction


def _joined(predictions: Iterable[Prediction], name: str) -> Array:
    joined: Array = np.concatenate([getattr(prediction, name) for prediction in predictions])
    return joined


def _classification(predictions: list[Prediction], y: Array) -> dict[str, float]:
    metrics = {}
    for prefix, name in (("", "probabilities"), ("map_", "map_probabilities")):
        p = _joined(predictions, name)
        metrics[f"{prefix}accuracy"] = float((p.argmax(axis=1) == y).mean())
        metrics[f"{prefix}log_likelihood"] = float(class_log_likelihood(p, y).mean())
        metrics[f"{prefix}brier"] = float(np.square(p - np.eye(p.shape[1])[y]).sum(axis=1).mean())
        metrics[f"{prefix}ece"] = expected_calibration_error(p, y)
    return metrics


def _regression(predictions: list[Prediction], y: Array) -> dict[str, float]:
    mean, std = _joined(predictions, "mean"), _joined(predictions, "std")
    low, high = gaussian_interval(mean, std, 0.95)
    return {
        "rmse": float(np.sqrt(np.square(mean - y).mean())),
        "log_likelihood": float(gaussian_log_likelihood(mean, std, y).mean()),
        "coverage_95": float(((low <= y) & (y <= high)).mean()),
    }


def _against(predictions: list[Prediction], predictor: Predictor, foreign: Batches) -> dict[str, float]:
    from sklearn.metrics import roc_auc_score

    others = [_finite(predictor, x.numpy()) for x, _ in checked_batches(foreign, "ood_data", torch.device("cpu"))]
    labels = np.repeat([0, 1], [sum(len(p.score) for p in group) for group in (predictions, others)])
    metrics = {
        "ood_reject_rate": float(_joined(others, "rejected").mean()),
        "ood_auroc": float(roc_auc_score(labels, _joined([*predictions, *others], "score"))),
    }
    if predictor.manifest.task == "classification":
        plain = entropy(_joined([*predictions, *others], "map_probabilities"))
        metrics["map_ood_auroc"] = float(roc_auc_score(labels, plain))
    return metrics
