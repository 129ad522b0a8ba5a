"""What evaluation keeps of a batch: a few numbers for each example, never its input. Pure NumPy.

A column is one number for each example, (B,) or, for each level of sets and intervals, (B, L).
"""

from collections.abc import Iterable, Sequence

import numpy as np

from probity.offline.data.likelihood import class_log_likelihood, gaussian_log_likelihood
from probity.offline.runtime.arrays import Array
from probity.service.inference.predictor import Prediction, Predictor
from probity.service.maths.predictive import entropy, gaussian_interval, predictive_std

LEVELS = (0.9, 0.95, 0.99)
Columns = dict[str, Array]
Levels = Sequence[float]


def with_level(level: float | None) -> Levels:
    """The usual levels and this one, ascending."""
    return LEVELS if level is None else sorted({*LEVELS, level})


def joined(batches: Iterable[Columns]) -> Columns:
    """The columns of all batches, in order."""
    every = list(batches)
    return {name: np.concatenate([batch[name] for batch in every]) for name in every[0]}


def decision_columns(prediction: Prediction) -> Columns:
    """Score and verdict; for a classification, the score of the plain network too: its entropy."""
    columns, plain = {"score": prediction.score, "rejected": prediction.rejected}, prediction.map_probabilities
    return columns if plain is None else columns | {"plain_score": entropy(plain)}


def class_columns(probabilities: Array, y: Array) -> Columns:
    """How well probabilities (B, K) describe the classes y (B,)."""
    rows = np.arange(len(y))
    chosen = probabilities[rows, y]
    return {
        "confidence": probabilities.max(axis=1),
        "correct": probabilities.argmax(axis=1) == y,
        "log_likelihood": class_log_likelihood(probabilities, y),
        # sum_k (p_k - [k = y])^2 without a matrix of the truths
        "brier": np.square(probabilities).sum(axis=1) - np.square(chosen) + np.square(1 - chosen),
    }


def set_columns(predictor: Predictor, probabilities: Array, y: Array, levels: Levels) -> Columns:
    """Whether the prediction set of each level holds the truth, and its size."""
    assert predictor.sets is not None  # of a classification
    members = [predictor.sets.members(probabilities, level) for level in levels]
    return {
        "set_holds": np.stack([member[np.arange(len(y)), y] for member in members], axis=1),
        "set_size": np.stack([member.sum(axis=1) for member in members], axis=1),
    }


def value_columns(mean: Array, std: Array, y: Array, levels: Levels) -> Columns:
    """How well N(mean, std^2) describes the values y, (B, K) each; `coverage` is the share of an example's outputs."""
    return {
        "squared_error": np.square(mean - y).mean(axis=1),
        "log_likelihood": gaussian_log_likelihood(mean, std, y),
        "coverage": np.stack([_inside(*gaussian_interval(mean, std, level), y) for level in levels], axis=1),
    }


def interval_columns(predictor: Predictor, prediction: Prediction, y: Array, levels: Levels) -> Columns:
    """The share of an example's outputs within the conformal interval of each level, NaN for too few residuals."""
    assert predictor.intervals is not None  # of a regression
    assert prediction.std is not None
    found = [predictor.intervals.around(prediction.mean, prediction.std, level) for level in levels]
    columns = [np.full(len(y), np.nan) if interval is None else _inside(*interval, y) for interval in found]
    return {"conformal_coverage": np.stack(columns, axis=1)}


def plain_std(predictor: Predictor, mean: Array) -> Array:
    """That of the plain network's predictive, the noise alone, (B, K)."""
    assert predictor.manifest.sigma_noise is not None
    return predictive_std(np.zeros_like(mean), predictor.manifest.sigma_noise)


def _inside(low: Array, high: Array, y: Array) -> Array:
    share: Array = ((low <= y) & (y <= high)).mean(axis=1)
    return share
