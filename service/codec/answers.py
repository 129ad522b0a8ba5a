"""Prediction -> the native API's JSON answer: the fields of an example, one column each."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from ..format.manifest import Task
from ..inference.decision import Decision
from ..inference.prediction import names_of
from ..inference.predictor import Prediction, Predictor
from ..maths.certified import CertifiedRule
from ..maths.class_rules import ClassRules
from ..maths.prediction_sets import LIKELY, PredictionSets, descending
from ..maths.predictive import noise_ratios
from ..maths.scores import MISTAKES, SCORES, Scoring
from ..maths.surprise import LargestSurprise

Array = npt.NDArray[Any]
Json = dict[str, Any]
TOP = 10  # classes of an answer that names no number
# By the binary exponent of a number: the power of ten that leaves at least six digits before its point.
LEAST_EXPONENT = -1074
EXPONENTS = np.arange(LEAST_EXPONENT, 1025)
SCALES = 10.0 ** np.clip(5 - np.floor((EXPONENTS - 1) * np.log10(2.0)), 0, 300)


@dataclass(frozen=True)
class View:
    """What an answer shows: these fields of `FIELDS`, None: those of `USUAL`; of `top` classes, the most
    probable first, None: of all; numbers `rounded`, or as computed."""

    fields: Sequence[str] | None = None
    top: int | None = None
    rounded: bool = True


def predictions_json(prediction: Prediction, decision: Decision, view: View | None = None) -> list[Json]:
    """One JSON object an example, as `demur.service.schemas` describes them; `decision` has decided."""
    task, view = decision.manifest.task, view or View(top=usual_top(decision.manifest.outputs))
    names = view.fields or list(USUAL[task])
    columns, known = _Columns(prediction, decision, view), FIELDS[task]
    return [dict(zip(names, row, strict=True)) for row in zip(*(known[name](columns) for name in names), strict=True)]


def score_names(prediction: Prediction, scoring: Scoring) -> list[str]:
    """What a sentence calls the score of each example; one made of several with the part that it is."""
    if not isinstance(scoring, LargestSurprise) or prediction.leading is None:
        return [SCORES[scoring.name].title] * len(prediction)
    titles = [f"surprise (by its {part.score.title})" for part in scoring.components]
    return [titles[place] for place in prediction.leading.tolist()]


def warnings_of(prediction: Prediction, predictor: Predictor, inputs: Array, field: str) -> list[str]:
    """Warnings about the inputs (B, *input_shape), which the request calls `field`."""
    outside = prediction.out_of_range
    if outside is None or predictor.range_check is None or not outside.any():
        return []
    return predictor.range_check.warnings(inputs, outside, field)


def rule_json(decision: Decision) -> Json:
    """What is rejected here, for the model's card: it may differ from what the bundle says."""
    rule = decision.rule
    found: Json = {"false_reject_rate": rule.false_reject_rate}
    if isinstance(rule, ClassRules):
        thresholds = rule.thresholds(np.arange(decision.manifest.outputs)).tolist()
        return found | {"thresholds": dict(zip(decision.manifest.labels, thresholds, strict=True))}
    found["threshold"] = rule.threshold
    return found | {"certified": asdict(rule.certificate)} if isinstance(rule, CertifiedRule) else found


def rounded(values: Array) -> Array:
    """The values with six or seven significant digits, about what a float32 holds; at 1e7 and above, whole numbers."""
    values = np.asarray(values, np.float64)
    scales = SCALES.take(np.frexp(values)[1] - LEAST_EXPONENT, mode="clip")
    return np.asarray(np.rint(values * scales) / scales)


class _Columns:
    """The columns of an answer: what `FIELDS` calls by their names, one entry for each example."""

    def __init__(self, prediction: Prediction, decision: Decision, view: View) -> None:
        self.answered, self.decision, self.view = prediction, decision, view
        self.manifest, self.names = decision.manifest, decision.manifest.labels
        self.level = decision.policy.interval_level
        self.unknown: list[None] = [None] * len(prediction)

    # Numbers

    @cached_property
    def usual(self) -> dict[str, list[Any]]:
        """The numbers of a usual answer by their fields, as Python's own: (B, K) as a list of lists, (B,) as a list.

        They are rounded together: for a few examples a call of NumPy costs more than what it computes.
        """
        one = self.answered
        given: dict[str, Array] = {"p_value": one.p_value, "score": one.score, "variance": one.variance}
        if one.std is None:
            given["probabilities"] = self.of_shown(self.p)
            given["variance"] = np.add.reduce(one.variance, axis=1, dtype=np.float64) / one.variance.shape[1]
        else:
            given |= {"mean": one.mean, "std": one.std}
        found, start = {}, 0
        rows = self.numbers(np.concatenate([one.reshape(len(one), -1) for one in given.values()], axis=1))
        for name, values in given.items():
            if values.ndim == 1:
                found[name], start = [row[start] for row in rows], start + 1
            else:
                stop = start + values.shape[1]
                found[name], start = [row[start:stop] for row in rows], stop
        return found

    # Classes and labels

    @cached_property
    def p(self) -> Array:
        """(B, K)."""
        found = self.answered.probabilities
        assert found is not None  # of a classification
        return found

    @cached_property
    def chosen(self) -> Array:
        """(B,): the most probable class."""
        found: Array = self.p.argmax(axis=1)
        return found

    @cached_property
    def order(self) -> Array:
        """(B, K): the classes in descending order of probability."""
        return descending(self.p)

    def by_class(self, values: Array) -> list[Json]:
        """(B, K) as an object an example: of all classes in their own order, or of the most probable ones in theirs."""
        return self.named(self.numbers(self.of_shown(values)))

    def of_shown(self, values: Array) -> Array:
        """(B, K) -> (B, top): of the classes that are shown, in their order."""
        if self.view.top is None:
            return values
        return values[np.arange(len(values))[:, np.newaxis], self.order[:, : self.view.top]]

    def named(self, rows: list[Any]) -> list[Json]:
        """Numbers of the classes that are shown, by their names."""
        if self.view.top is None:
            return [dict(zip(self.names, row, strict=True)) for row in rows]
        names, places = self.names, self.order[:, : self.view.top].tolist()
        return [
            {names[k]: value for k, value in zip(shown, row, strict=True)}
            for shown, row in zip(places, rows, strict=True)
        ]

    def label(self) -> list[Any]:
        return [self.names[k] for k in self.chosen.tolist()]

    def probability(self) -> list[Any]:
        return [max(row) for row in self.usual["probabilities"]]

    def labels(self) -> list[Any]:
        return names_of(self.p >= LIKELY, self.names)

    def probabilities(self) -> list[Any]:
        return self.named(self.usual["probabilities"])

    def map_label(self) -> list[Any]:
        return [self.names[k] for k in self.q.argmax(axis=1).tolist()]

    def map_labels(self) -> list[Any]:
        return names_of(self.q >= LIKELY, self.names)

    def map_probabilities(self) -> list[Any]:
        return self.by_class(self.q)

    @property
    def q(self) -> Array:
        found = self.answered.map_probabilities
        assert found is not None  # of a classification
        return found

    def mean_variance(self) -> Sequence[Any]:
        """Over the classes: all that the probabilities depend on, where one scale is shared (probit-shared)."""
        return self.usual["variance"]

    def logit_mean(self) -> list[Any]:
        return self.by_class(self.answered.mean)

    def logit_variance(self) -> Sequence[Any]:
        return self.by_class(self.answered.variance)

    def class_variance_parts(self) -> Sequence[Any]:
        added = self.answered.added_variance
        if added is None:
            return self.unknown
        parts = zip(self.by_class(_rest(self.answered, added[:, np.newaxis])), self.numbers(added), strict=True)
        return [{"subnetwork": subnetwork, "added": part} for subnetwork, part in parts]

    def uncertainty(self) -> Sequence[Any]:
        names = ("total", "aleatoric", "epistemic")
        rows = self.numbers(np.stack([getattr(self.answered, name) for name in names], axis=1))
        return [dict(zip(names, row, strict=True)) for row in rows]

    def prediction_set(self) -> Sequence[Any]:
        """Of each example; its classes in descending order of probability."""
        sets = self.decision.sets
        if not isinstance(sets, PredictionSets):
            return self.unknown
        level, names, order = self.level, self.names, self.order
        found = [
            places[held].tolist() for places, held in zip(order, sets.ranked_members(self.p, order, level), strict=True)
        ]
        return [{"level": level, "size": len(held), "labels": [names[k] for k in held]} for held in found]

    def label_set(self) -> Sequence[Any]:
        """Which labels each example surely has, and which it may have or not."""
        if self.decision.sets is None:
            return self.unknown
        level, members = self.level, self.decision.members(self.answered)
        absent, present = members[..., 0], members[..., 1]
        groups = (present & ~absent, present & absent, absent & ~present)
        named = zip(*(names_of(group, self.names) for group in groups), strict=True)
        return [{"level": level, "present": has, "undecided": may, "absent": lacks} for has, may, lacks in named]

    # Values

    def value_names(self) -> list[Any]:
        return [self.manifest.class_names] * len(self.unknown)

    def mean(self) -> list[Any]:
        return self.usual["mean"]

    def variance(self) -> Sequence[Any]:
        return self.usual["variance"]

    def std(self) -> Sequence[Any]:
        return self.usual["std"]

    def noise_std(self) -> Sequence[Any]:
        noises, scale = np.array(self.manifest.noises), self.answered.noise_scale
        return [self.numbers(noises)] * len(self.unknown) if scale is None else self.numbers(noises * scale)

    def value_variance_parts(self) -> Sequence[Any]:
        if self.answered.added_variance is None:
            return self.unknown
        ratios = noise_ratios(np.array(self.manifest.noises))[1]
        added = self.answered.added_variance[:, np.newaxis].astype(np.float64) * np.square(ratios)
        parts = zip(self.numbers(_rest(self.answered, added)), self.numbers(added), strict=True)
        return [{"subnetwork": subnetwork, "added": part} for subnetwork, part in parts]

    def interval(self) -> Sequence[Any]:
        low, high = map(self.numbers, self.decision.intervals(self.answered))
        fixed = {"level": self.level, "kind": self.decision.interval_kind}
        return [fixed | {"low": below, "high": above} for below, above in zip(low, high, strict=True)]

    # The decision

    def score(self) -> Sequence[Any]:
        return self.usual["score"]

    def p_value(self) -> Sequence[Any]:
        return self.usual["p_value"]

    def rejected(self) -> Sequence[Any]:
        rejected: list[bool] = self.answered.rejected.tolist()
        return rejected

    def threshold(self) -> Sequence[Any]:
        """The largest score that would have been accepted."""
        return self.numbers(self.decision.thresholds(self.answered))

    def false_reject_rate(self) -> Sequence[Any]:
        return [self.decision.rule.false_reject_rate] * len(self.unknown)

    def reason(self) -> Sequence[Any]:
        """A sentence about each rejection."""
        found: list[str | None] = [None] * len(self.unknown)
        answered = self.answered
        if not answered.rejected.any():
            return found
        names, thresholds = score_names(answered, self.decision.predictive.score), self.decision.thresholds(answered)
        held_out = self.compared_with
        for i in np.flatnonzero(answered.rejected).tolist():
            decided = (float(answered.score[i]), float(thresholds[i]), float(answered.p_value[i]))
            place = -1 if answered.mistake is None else int(answered.mistake[i])
            words = "" if place < 0 else MISTAKES[self.manifest.mistakes[place]]
            alike = f" It looks like {words}." if words and words not in names[i] else ""
            found[i] = _reason(names[i], *decided, *held_out[i]) + alike
        return found

    @property
    def compared_with(self) -> list[tuple[int, str]]:
        """How many held-out inputs each example's score is compared with, and which."""
        rule = self.decision.rule
        if not isinstance(rule, ClassRules):
            return [(len(rule.scores), "")] * len(self.unknown)
        which = " predicted to be of its class or of one like it"
        return [(count, which) for count in rule.examples(self.chosen)]

    def numbers(self, values: Array) -> list[Any]:
        """As Python's own, nested as the array is."""
        found: list[Any] = (rounded(values) if self.view.rounded else values.astype(np.float64)).tolist()
        return found


Column = Callable[[_Columns], Sequence[Any]]
DECISION: dict[str, Column] = {
    "rejected": _Columns.rejected,
    "p_value": _Columns.p_value,
    "score": _Columns.score,
    "reason": _Columns.reason,
}
RULE: dict[str, Column] = {"threshold": _Columns.threshold, "false_reject_rate": _Columns.false_reject_rate}
OF_CLASSES: dict[str, Column] = {
    "logit_mean": _Columns.logit_mean,
    "logit_variance": _Columns.logit_variance,
    "variance_parts": _Columns.class_variance_parts,
    "uncertainty": _Columns.uncertainty,
    **RULE,
}
# What an answer has of each example, then what `?detail=full` adds.
USUAL: Mapping[Task, dict[str, Column]] = {
    "classification": {
        "label": _Columns.label,
        "probability": _Columns.probability,
        "probabilities": _Columns.probabilities,
        **DECISION,
        "prediction_set": _Columns.prediction_set,
        "variance": _Columns.mean_variance,
    },
    "multilabel": {
        "labels": _Columns.labels,
        "probabilities": _Columns.probabilities,
        **DECISION,
        "prediction_set": _Columns.label_set,
        "variance": _Columns.mean_variance,
    },
    "regression": {
        "names": _Columns.value_names,
        "mean": _Columns.mean,
        "std": _Columns.std,
        **DECISION,
        "interval": _Columns.interval,
        "variance": _Columns.variance,
    },
}
ADDED: Mapping[Task, dict[str, Column]] = {
    "classification": {
        "map_label": _Columns.map_label,
        "map_probabilities": _Columns.map_probabilities,
        **OF_CLASSES,
    },
    "multilabel": {
        "map_labels": _Columns.map_labels,
        "map_probabilities": _Columns.map_probabilities,
        **OF_CLASSES,
    },
    "regression": {"noise_std": _Columns.noise_std, "variance_parts": _Columns.value_variance_parts, **RULE},
}
FIELDS: Mapping[Task, dict[str, Column]] = {task: USUAL[task] | ADDED[task] for task in USUAL}


def usual_top(outputs: int) -> int | None:
    """How many classes an answer shows that asks for no number; None for all."""
    return None if outputs <= TOP else TOP


def _rest(prediction: Prediction, added: Array) -> Array:
    """What of the variances is not the added weights'; the sum was rounded, so it may be a little below zero."""
    return np.asarray(np.maximum(prediction.variance - added.astype(np.float64), 0.0))


def _reason(name: str, score: float, threshold: float, p_value: float, every: int, which: str) -> str:
    """One sentence about a rejection: `every` held-out inputs, `which` they are."""
    below = every + 1 - round(p_value * (every + 1))
    digits = next(d for d in (4, 6, 17) if d == 17 or f"{score:.{d}g}" != f"{threshold:.{d}g}")
    unusual = f"higher than that of {below:,} of {every:,} held-out inputs{which}"
    return f"The {name}, {score:.{digits}g}, is {unusual} (accepted up to {threshold:.{digits}g})."
