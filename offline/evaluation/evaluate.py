"""Evaluate a bundle with the serving code on labelled test data, and on out-of-distribution data."""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from demur.service.format.manifest import Manifest, Task
from demur.service.inference.predictor import Prediction, Predictor, check_finite
from demur.service.maths.predictive import each_label_log_likelihood

from ..data.given import Given, Like, given_data, given_foreign
from ..data.likelihood import likelihood_of
from ..data.texts import TextEncoder
from ..runtime.arrays import Array
from .certificates import certified_figures
from .columns import (
    LEVELS,
    Columns,
    Levels,
    class_columns,
    decision_columns,
    interval_columns,
    joined,
    label_columns,
    label_set_columns,
    of_output,
    plain_std,
    set_columns,
    value_columns,
)
from .diagnostics import augrc, aurc, auroc, equal_mass, equal_width, false_positive_rate
from .measured import Measured, measured_share

Figures = dict[str, Measured]
MOST_NAMED = 1000  # of more outputs, none is told by itself


@dataclass(frozen=True)
class Evaluation:
    """Figures of the Laplace approximation, and those of the plain network that can be compared with them.

    examples, foreign_examples: of test_data(), and of foreign_data() (0 without). by_output: of several targets or
    labels, (Laplace, plain) of each by its name.
    """

    laplace: Figures
    plain: Figures
    examples: int
    foreign_examples: int
    by_output: Mapping[str, tuple[Figures, Figures]] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """Plain numbers, for a file; null in place of what is not finite."""
        return {
            "examples": self.examples,
            "ood_examples": self.foreign_examples,
            "laplace": _json_figures(self.laplace),
            "plain": _json_figures(self.plain),
            "by_output": {
                name: {"laplace": _json_figures(laplace), "plain": _json_figures(plain)}
                for name, (laplace, plain) in self.by_output.items()
            },
        }


def evaluate(predictor: Predictor, test: Any, foreign: Any = None, levels: Levels = LEVELS) -> Evaluation:
    """Quality on test data and, given out-of-distribution data, how well the score tells them apart.

    test, foreign: what `fit_bundle` takes as data. levels: of prediction sets and intervals. What the predictor was
    opened with holds here too: its rule.

    Keeps a few numbers for each example, not the inputs. Raises `ValueError` for data that do not suit the bundle, and
    `NonFinitePrediction`.
    """
    spec, targets = predictor.manifest.input, predictor.manifest.class_names
    names, reader = spec.feature_names, predictor.reader
    encoder = None if reader is None else TextEncoder.of_bundle(reader, spec)
    found = joined(_test_columns(predictor, given_data(test, "test_data", names, targets, encoder), levels))
    others = None
    if foreign is not None:
        others = joined(_foreign_columns(predictor, given_foreign(foreign, "foreign_data", names, encoder)))
    classification = predictor.manifest.task != "regression"
    laplace, plain = _classification(found, levels) if classification else _regression(found, levels)
    laplace["false_reject_rate"] = measured_share(found["rejected"].mean(), len(found["rejected"]))
    if classification:
        laplace |= _accepted(found) | certified_figures(predictor.decision.outcomes, found["score"], found["correct"])
    if others is not None:
        laplace["ood_reject_rate"] = measured_share(others["rejected"].mean(), len(others["rejected"]))
        laplace |= _against(found["score"], others["score"])
        if classification:
            plain |= _against(found["plain_score"], others["plain_score"])
    counts = len(found["score"]), 0 if others is None else len(others["score"])
    return Evaluation(laplace, plain, *counts, _by_output(found, predictor.manifest, levels))


def _test_columns(predictor: Predictor, test: Given, levels: Levels) -> Iterator[Columns]:
    manifest = predictor.manifest
    likelihood = likelihood_of(manifest.task, manifest.outputs)
    for inputs, raw in test.pairs(torch.device("cpu"), Like(parts=manifest.input.parts)):
        prediction = _finite(predictor, inputs.numpy(), "test_data")
        y = likelihood.check_targets(raw, len(inputs)).numpy()
        yield decision_columns(prediction) | BY_TASK[manifest.task](predictor, prediction, y, levels)


def _foreign_columns(predictor: Predictor, foreign: Given) -> Iterator[Columns]:
    for inputs, _ in foreign.pairs(torch.device("cpu"), Like(parts=predictor.manifest.input.parts)):
        yield decision_columns(_finite(predictor, inputs.numpy(), "foreign_data"))


def _finite(predictor: Predictor, inputs: Array, name: str) -> Prediction:
    shape = predictor.manifest.input.shape
    if inputs.shape[1:] != shape:
        raise ValueError(f"{name}: found inputs of shape {inputs.shape[1:]}, expected {shape} as the bundle takes them")
    prediction = predictor.predict(inputs)
    check_finite(prediction)
    return prediction


def _class_batch(predictor: Predictor, prediction: Prediction, y: Array, levels: Levels) -> Columns:
    p, plain = prediction.probabilities, prediction.map_probabilities
    assert p is not None
    assert plain is not None
    return class_columns(p, y) | set_columns(predictor, p, y, levels) | _as_plain(class_columns(plain, y))


def _label_batch(predictor: Predictor, prediction: Prediction, y: Array, levels: Levels) -> Columns:
    mean, manifest = prediction.mean, predictor.manifest
    p, plain = prediction.probabilities, prediction.map_probabilities
    assert p is not None
    assert plain is not None
    likely = each_label_log_likelihood(mean, prediction.variance, y, manifest.temperature)
    plainly = each_label_log_likelihood(mean, 0.0 * mean, y, manifest.map_temperature)
    found = label_columns(p, likely, y) | label_set_columns(predictor, p, y, levels)
    return found | _as_plain(label_columns(plain, plainly, y))


def _value_batch(predictor: Predictor, prediction: Prediction, y: Array, levels: Levels) -> Columns:
    mean, std = prediction.mean, prediction.std
    assert std is not None
    plain = value_columns(mean, plain_std(predictor, prediction), y, levels)
    laplace = value_columns(mean, std, y, levels) | interval_columns(predictor, prediction, y, levels)
    return laplace | _as_plain(plain)


BY_TASK: dict[Task, Callable[[Predictor, Prediction, Array, Levels], Columns]] = {
    "classification": _class_batch,
    "multilabel": _label_batch,
    "regression": _value_batch,
}


def _as_plain(columns: Columns) -> Columns:
    return {f"plain_{name}": values for name, values in columns.items()}


def _classification(found: Columns, levels: Levels) -> tuple[Figures, Figures]:
    """Laplace and plain; mistakes are ranked by the bundle's score, and by the plain network's entropy."""
    laplace, plain = (_class_figures(found, prefix) for prefix in ("", "plain_"))
    return laplace | _set_figures(found, levels), plain


def _set_figures(found: Columns, levels: Levels) -> Figures:
    figures, name = Figures(), "set_size" if "set_size" in found else "undecided"
    for i, level in enumerate(levels):
        holds = found["set_holds"][..., i]
        figures[f"set_coverage_{_percent(level)}"] = measured_share(holds.mean(), len(holds))
        figures[f"{name}_{_percent(level)}"] = Measured(float(found[name][..., i].mean()))
    return figures


def _class_figures(found: Columns, prefix: str) -> Figures:
    correct, score = found[f"{prefix}correct"], found[f"{prefix}score"]
    confidence, stated = found[f"{prefix}confidence"].ravel(), found.get(f"{prefix}label_correct", correct).ravel()
    values = {
        "log_likelihood": _log_likelihood(found, prefix),
        "brier": found[f"{prefix}brier"].mean(),
        "ece": equal_width(confidence, stated).ece,
        "adaptive_ece": equal_mass(confidence, stated).ece,
        "aurc": aurc(score, ~correct),
        "augrc": augrc(score, ~correct),
    }
    accuracy = {"accuracy": measured_share(correct.mean(), len(correct))}
    if f"{prefix}label_correct" in found:
        accuracy["label_accuracy"] = Measured(float(stated.mean()))
    return accuracy | {name: Measured(float(value)) for name, value in values.items()}


def _log_likelihood(found: Columns, prefix: str) -> float:
    """The mean over examples, of several outputs of their sum."""
    each = found.get(f"{prefix}log_density")
    return float((found[f"{prefix}log_likelihood"] if each is None else each.sum(axis=1)).mean())


def _by_output(found: Columns, manifest: Manifest, levels: Levels) -> dict[str, tuple[Figures, Figures]]:
    """The figures of each target or label by itself, where there are several."""
    if manifest.task == "classification" or not 1 < manifest.outputs <= MOST_NAMED:
        return {}
    names = manifest.class_names or tuple(map(str, range(manifest.outputs)))
    figures = _regression if manifest.task == "regression" else _label_figures
    return {name: figures(of_output(found, k), levels) for k, name in enumerate(names)}


def _label_figures(found: Columns, levels: Levels) -> tuple[Figures, Figures]:
    """Laplace and plain, of one label."""
    laplace, plain = (_one_label(found, prefix) for prefix in ("", "plain_"))
    return laplace | _set_figures(found, levels), plain


def _one_label(found: Columns, prefix: str) -> Figures:
    correct, confidence = found[f"{prefix}label_correct"].ravel(), found[f"{prefix}confidence"].ravel()
    return {
        "accuracy": measured_share(correct.mean(), len(correct)),
        "log_likelihood": Measured(_log_likelihood(found, prefix)),
        "brier": Measured(float(found[f"{prefix}brier"].mean())),
        "ece": Measured(equal_width(confidence, correct).ece),
    }


def _regression(found: Columns, levels: Levels) -> tuple[Figures, Figures]:
    laplace, plain = (_value_figures(found, prefix, levels) for prefix in ("", "plain_"))
    return laplace | _coverage(found, "conformal_coverage", levels), plain


def _value_figures(found: Columns, prefix: str, levels: Levels) -> Figures:
    return {
        "rmse": Measured(math.sqrt(found[f"{prefix}squared_error"].mean())),
        "log_likelihood": Measured(_log_likelihood(found, prefix)),
    } | _coverage(found, f"{prefix}coverage", levels)


def _coverage(found: Columns, name: str, levels: Levels) -> Figures:
    """One figure for each level; none for a level that the bundle has too few residuals for."""
    if name not in found:
        return {}
    shares = dict(zip(levels, found[name].mean(axis=(0, 1)), strict=True))
    return {
        f"{name.removeprefix('plain_')}_{_percent(level)}": measured_share(share, len(found[name]))
        for level, share in shares.items()
        if not math.isnan(share)
    }


def _accepted(found: Columns) -> Figures:
    """The accuracy of the accepted; nothing where nothing was."""
    correct = found["correct"][~found["rejected"]]
    return {"accepted_accuracy": measured_share(correct.mean(), len(correct))} if len(correct) else {}


def _against(inside: Array, foreign: Array) -> Figures:
    return {
        "ood_auroc": Measured(auroc(inside, foreign)),
        "ood_fpr_95": Measured(false_positive_rate(inside, foreign)),
    }


def _percent(level: float) -> str:
    return f"{100 * level:g}"


def _json_figures(figures: Figures) -> dict[str, Any]:
    return {name: _json(figure) for name, figure in figures.items()}


def _json(figure: Measured) -> dict[str, Any]:
    value = figure.value if np.isfinite(figure.value) else None
    return {"value": value} if figure.interval is None else {"value": value, "interval": list(figure.interval)}
