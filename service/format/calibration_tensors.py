"""calibration.safetensors: written, and read with every tensor checked.

Reader and writer stand side by side so that they cannot drift. `service/BUNDLE.md` is the normative text.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import safetensors.numpy

from ..maths.outcomes import ClassOutcomes, LabelOutcomes, Outcomes, RegressionOutcomes, Verdicts
from ..maths.score_distribution import MOST_LEVELS, ScoreDistribution
from ..maths.scores import SCORES, Scoring
from ..maths.surprise import Component, LargestSurprise
from .files import BundleError
from .manifest import Manifest
from .manifest_parts import Calibration, ScorePart
from .tensors import Tensors, read_tensors, refuse_rest, take

TUNING = "tuning."
PARTS = "part."
UNUSED = "reference."  # quantiles that older bundles have
CONFIDENCES, CLASSES = "confidences", "classes"

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class CalibrationTensors:
    """scores (n,) ascending; outcomes: those of the examples; scoring: what makes the scores, None: the single score
    that the manifest names."""

    scores: Array
    outcomes: Outcomes
    scoring: Scoring | None = None


def check_scoring(scoring: Scoring | None, calibration: Calibration) -> None:
    """`ValueError` where what makes the scores is not what the manifest says."""
    if (scoring is not None and scoring.name != calibration.score) or score_parts(scoring) != calibration.parts:
        name = None if scoring is None else scoring.name
        raise ValueError(f"scoring: found {name!r}, expected {calibration.score!r} with its parts as in the manifest")


def score_parts(scoring: Scoring | None) -> tuple[ScorePart, ...] | None:
    """What a score is made of; None for a single one."""
    if not isinstance(scoring, LargestSurprise):
        return None
    known = ((part, part.distribution) for part in scoring.components)
    return tuple(ScorePart(p.score.name, d.scale, d.shape, p.least, p.end) for p, d in known)


def calibration_to_bytes(tensors: CalibrationTensors) -> bytes:
    """The content of the file."""
    found = {"scores": np.asarray(tensors.scores, np.float64), **_outcome_tensors(tensors.outcomes)}
    return safetensors.numpy.save(found | _part_tensors(tensors.scoring))


def _part_tensors(scoring: Scoring | None) -> Tensors:
    found: Tensors = {}
    for part in scoring.components if isinstance(scoring, LargestSurprise) else ():
        found[f"{PARTS}{part.score.name}.values"] = np.asarray(part.distribution.values, np.float64)
        found[f"{PARTS}{part.score.name}.surprise"] = np.asarray(part.distribution.surprise, np.float64)
    return found


def _outcome_tensors(outcomes: Outcomes) -> Tensors:
    if isinstance(outcomes, RegressionOutcomes):
        return {"residuals": np.ascontiguousarray(outcomes.residuals, np.float64)}
    known, tuning = outcomes.calibration, outcomes.tuning
    found = {
        "predicted": np.asarray(known.predicted, np.int32),
        "correct": np.asarray(known.correct, np.bool_),
        "set_scores": np.asarray(outcomes.set_scores, np.float64),
    }
    if outcomes.confidences is not None:
        found[CONFIDENCES] = np.asarray(outcomes.confidences, np.float64)
    if outcomes.classes is not None:
        found[CLASSES] = np.asarray(outcomes.classes, np.int32)
    if tuning is not None:
        found[TUNING + "scores"] = np.asarray(tuning.scores, np.float64)
        found[TUNING + "predicted"] = np.asarray(tuning.predicted, np.int32)
        found[TUNING + "correct"] = np.asarray(tuning.correct, np.bool_)
    return found


def calibration_from_bytes(file: Path, data: bytes, manifest: Manifest) -> CalibrationTensors:
    """What is in `data`, checked; `BundleError`."""
    tensors = {name: one for name, one in read_tensors(file, data).items() if not name.startswith(UNUSED)}
    scores = _ascending(file, tensors, "scores", manifest.calibration.scores)
    outcomes = _outcomes(file, tensors, scores, manifest)
    scoring = _scoring(file, tensors, manifest.calibration)
    refuse_rest(file, tensors)
    return CalibrationTensors(scores, outcomes, scoring)


def _scoring(file: Path, tensors: Tensors, calibration: Calibration) -> Scoring:
    if calibration.parts is None:
        return SCORES[calibration.score]
    parts = []
    for part in calibration.parts:
        values = take(file, tensors, f"{PARTS}{part.name}.values", "float64", (-1,))
        surprise = take(file, tensors, f"{PARTS}{part.name}.surprise", "float64", (len(values),))
        if not 0 < len(values) <= MOST_LEVELS or (np.diff(values) <= 0).any():
            expected = f"1 to {MOST_LEVELS} numbers, in strictly ascending order"
            raise BundleError(file, f"{PARTS}{part.name}.values: found something else, expected {expected}")
        if surprise[0] < 0 or (np.diff(surprise) < 0).any():
            raise BundleError(file, f"{PARTS}{part.name}.surprise: expected numbers of at least 0, in ascending order")
        distribution = ScoreDistribution(values, surprise, part.scale, part.shape)
        parts.append(Component(SCORES[part.name], distribution, part.least, part.end))
    return LargestSurprise(tuple(parts))


def _ascending(file: Path, tensors: Tensors, name: str, examples: int) -> Array:
    scores = take(file, tensors, name, "float64", (examples,))
    if not len(scores) or (scores[1:] < scores[:-1]).any():
        raise BundleError(file, f"{name}: expected at least one score, in ascending order")
    return scores


def _outcomes(file: Path, tensors: Tensors, scores: Array, manifest: Manifest) -> Outcomes:
    if manifest.task == "regression":
        residuals = take(file, tensors, "residuals", "float64", (manifest.calibration.examples, manifest.outputs))
        if (residuals < 0).any():
            raise BundleError(file, "residuals: found a negative one, expected numbers of at least 0")
        return RegressionOutcomes(residuals)
    known = _verdicts(file, tensors, "", scores, manifest.outputs)
    several = manifest.task == "multilabel"
    shape = (len(scores), manifest.outputs) if several else (len(scores),)
    set_scores = take(file, tensors, "set_scores", "float64", shape)
    kind, tuning_examples = LabelOutcomes if several else ClassOutcomes, manifest.calibration.outcomes.tuning_examples
    confidences = take(file, tensors, CONFIDENCES, "float64", (len(scores),)) if CONFIDENCES in tensors else None
    if confidences is not None and not ((confidences >= 0) & (confidences <= 1)).all():
        raise BundleError(file, f"{CONFIDENCES}: expected probabilities, from 0 to 1")
    tuning = None
    if tuning_examples:
        own = _ascending(file, tensors, TUNING + "scores", tuning_examples)
        tuning = _verdicts(file, tensors, TUNING, own, manifest.outputs)
    classes = None if several or CLASSES not in tensors else _classes(file, tensors, known, manifest.outputs)
    return kind(known, set_scores, tuning, confidences, classes)


def _classes(file: Path, tensors: Tensors, known: Verdicts, outputs: int) -> Array:
    found = take(file, tensors, CLASSES, "int32", (len(known),))
    if found.min() < 0 or found.max() >= outputs or ((found == known.predicted) != known.correct).any():
        raise BundleError(file, f"{CLASSES}: expected class numbers from 0 to {outputs - 1} that agree with `correct`")
    return found


def _verdicts(file: Path, tensors: Tensors, prefix: str, scores: Array, classes: int) -> Verdicts:
    predicted = take(file, tensors, prefix + "predicted", "int32", (len(scores),))
    if predicted.min() < 0 or predicted.max() >= classes:
        raise BundleError(file, f"{prefix}predicted: expected class numbers from 0 to {classes - 1}")
    return Verdicts(scores, predicted, take(file, tensors, prefix + "correct", "bool", (len(scores),)))
