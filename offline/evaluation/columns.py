"""What evaluation keeps of a batch: a few numbers for each example, never its input. Pure NumPy.

A column is one number for each example, (B,), or for each level of sets and intervals, (B, L). Those of
`OF_OUTPUTS` are of each target of a regression, or of each label where an example may have several: (B, K), (B, K, L).
"""

from collections.abc import Iterable, Sequence

import numpy as np

from demur.service.inference.predictor import Prediction, Predictor
from demur.service.maths.prediction_sets import LIKELY, LabelSets, PredictionSets
from demur.service.maths.predictive import entropy, gaussian_interval, label_entropy, predictive_std

from ..data.likelihood import class_log_likelihood, each_gaussian_log_likelihood
from ..runtime.arrays import Array

OF_OUTPUTS = frozenset(
    {"squared_error", "log_density", "coverage", "conformal_coverage"}
    | {"confidence", "label_correct", "brier", "set_holds", "undecided"}
)
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
    if plain is None:
        return columns
    return columns | {"plain_score": label_entropy(plain) if prediction.multilabel else entropy(plain)}


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


def of_output(columns: Columns, k: int) -> Columns:
    """Those of the target or label k, (B, 1) or (B, 1, L)."""
    return {name: values[:, k : k + 1] for name, values in columns.items() if name.removeprefix("plain_") in OF_OUTPUTS}


def label_columns(probabilities: Array, log_density: Array, y: Array) -> Columns:
    """How well probabilities (B, K) of having each label describe what is true, y (B, K) of 0 and 1.

    log_density (B, K): log p(y_k). correct: whether all labels are right; label_correct, and confidence, its
    probability: each label by itself.
    """
    right = (probabilities >= LIKELY) == (y > 0)
    return {
        "confidence": np.maximum(probabilities, 1 - probabilities),
        "correct": right.all(axis=1),
        "label_correct": right,
        "log_density": log_density,
        "brier": np.square(probabilities - y),
    }


def label_set_columns(predictor: Predictor, probabilities: Array, y: Array, levels: Levels) -> Columns:
    """Whether the set of each label and level holds the truth, and whether it is undecided."""
    sets = predictor.decision.sets
    assert isinstance(sets, LabelSets)
    members, place = [sets.members(probabilities, level) for level in levels], y.astype(int)[..., np.newaxis]
    holds = [np.take_along_axis(member, place, axis=2)[..., 0] for member in members]
    return {
        "set_holds": np.stack(holds, axis=2),
        "undecided": np.stack([member.all(axis=2) for member in members], axis=2),
    }


def set_columns(predictor: Predictor, probabilities: Array, y: Array, levels: Levels) -> Columns:
    """Whether the prediction set of each level holds the truth, and its size."""
    sets = predictor.decision.sets
    assert isinstance(sets, PredictionSets)
    members = [sets.members(probabilities, level) for level in levels]
    return {
        "set_holds": np.stack([member[np.arange(len(y)), y] for member in members], axis=1),
        "set_size": np.stack([member.sum(axis=1) for member in members], axis=1),
    }


def value_columns(mean: Array, std: Array, y: Array, levels: Levels) -> Columns:
    """How well N(mean, std^2) describes the values y, (B, K) each; coverage: whether the interval of a level holds."""
    return {
        "squared_error": np.square(mean - y),
        "log_density": each_gaussian_log_likelihood(mean, std, y),
        "coverage": np.stack([_inside(*gaussian_interval(mean, std, level), y) for level in levels], axis=2),
    }


def interval_columns(predictor: Predictor, prediction: Prediction, y: Array, levels: Levels) -> Columns:
    """Whether the conformal interval of each output and level holds the value, NaN for too few residuals."""
    residuals = predictor.decision.residuals
    assert residuals is not None  # of a regression
    assert prediction.std is not None
    found = [residuals.around(prediction.mean, prediction.std, level) for level in levels]
    columns = [np.full(y.shape, np.nan) if interval is None else _inside(*interval, y) for interval in found]
    return {"conformal_coverage": np.stack(columns, axis=2)}


def plain_std(predictor: Predictor, prediction: Prediction) -> Array:
    """That of the plain network's predictive, the noise alone, (B, K)."""
    assert predictor.manifest.noises is not None
    return predictive_std(np.zeros_like(prediction.mean), np.array(predictor.manifest.noises), prediction.noise_scale)


def _inside(low: Array, high: Array, y: Array) -> Array:
    holds: Array = (low <= y) & (y <= high)
    return holds
