"""Prediction -> the native API's JSON answer."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from probity.service.bundle import Manifest
from probity.service.inference.deciding import Rule
from probity.service.inference.prediction import label_names
from probity.service.inference.predictor import PlainPrediction, Prediction, Predictor
from probity.service.maths.certified import CertifiedRule
from probity.service.maths.class_rules import ClassRules
from probity.service.maths.fused_score import JoinedScore
from probity.service.maths.predictive import gaussian_interval, noise_ratios
from probity.service.maths.scores import SCORES

Array = npt.NDArray[Any]
Json = dict[str, Any]
# What a sentence calls a score made of several, with its largest part.
JOINED_SCORES = {"fused": "fused score (mainly its {})", "surprise": "surprise (by its {})"}
ADVICE = "the input is unusual for this model, or ambiguous, so check it before you rely on this answer"


@dataclass(frozen=True)
class Coverage:
    """What share of the truths sets and intervals shall hold, and whether intervals are `conformal` where they can."""

    level: float
    conformal: bool

    def __post_init__(self) -> None:
        if not 0 < self.level < 1:
            raise ValueError(f"interval_level: found {self.level:g}, expected a number between 0 and 1")

    def kind(self, predictor: Predictor) -> str:
        """Which intervals the bundle gives at this level: `conformal` or `gaussian`."""
        known = predictor.intervals if self.conformal else None
        return "gaussian" if known is None or known.half_widths(self.level) is None else "conformal"

    def intervals(self, prediction: Prediction, predictor: Predictor) -> tuple[str, Array, Array]:
        """Their kind, and their ends, (B, K) both."""
        assert prediction.std is not None  # of a regression
        mean, std, known = prediction.mean, prediction.std, predictor.intervals if self.conformal else None
        found = None if known is None else known.around(mean, std, self.level)
        return ("conformal", *found) if found is not None else ("gaussian", *gaussian_interval(mean, std, self.level))


def predictions_json(
    prediction: Prediction | PlainPrediction, predictor: Predictor, rule: Rule, coverage: Coverage
) -> list[Json]:
    """One JSON object an example, as `probity.service.schemas` describes them; `rule` has decided."""
    if isinstance(prediction, PlainPrediction):
        return _plain(prediction, predictor.manifest)
    if prediction.probabilities is not None:
        examples = _classification(prediction, predictor, coverage.level)
    else:
        examples = _regression(prediction, predictor, coverage)
    described = zip(score_names(prediction, predictor), _compared_with(prediction, rule), strict=True)
    return [
        {**example, "ood": {**decision, "reason": _reason(decision, name, *held_out) if decision["rejected"] else None}}
        for example, decision, (name, held_out) in zip(examples, decisions(prediction, rule), described, strict=True)
    ]


def score_names(prediction: Prediction, predictor: Predictor) -> list[str]:
    """What a sentence calls the score of each example; one made of several with its largest part."""
    scoring = predictor.scoring
    if not isinstance(scoring, JoinedScore) or prediction.leading is None:
        return [SCORES[scoring.name].title] * len(prediction)
    titles = [part.score.title for part in scoring.components]
    return [JOINED_SCORES[scoring.name].format(titles[place]) for place in prediction.leading.tolist()]


def warnings_of(prediction: Prediction | PlainPrediction, predictor: Predictor, inputs: Array, field: str) -> list[str]:
    """Warnings about the inputs (B, *input_shape), which the request calls `field`."""
    outside = prediction.out_of_range
    if outside is None or predictor.range_check is None or not outside.any():
        return []
    return predictor.range_check.warnings(inputs, outside, field)


def _plain(prediction: PlainPrediction, manifest: Manifest) -> list[Json]:
    """The plain network's answer; everything that needs the posterior is null."""
    means, q = prediction.mean.tolist(), prediction.map_probabilities
    if q is None:
        unknown = dict.fromkeys(("epistemic_std", "variance_parts", "std", "interval", "ood"))
        known = {"names": manifest.class_names, "noise_std": manifest.noises}
        return [{"mean": mean, **known, **unknown} for mean in means]
    unknown = dict.fromkeys(("logit_variance", "variance_parts", "uncertainty", "prediction_set", "ood"))
    names, chosen = manifest.labels, chosen_of(q, manifest)
    return [
        {
            **own,
            "probabilities": dict(zip(names, probabilities, strict=True)),
            "map_probabilities": dict(zip(names, probabilities, strict=True)),
            **_as_map(own),
            "logit_mean": mean,
            **unknown,
        }
        for mean, own, probabilities in zip(means, chosen, q.tolist(), strict=True)
    ]


def chosen_of(probabilities: Array, manifest: Manifest) -> list[Json]:
    """The most probable class and its probability, or the labels that each example is said to have."""
    names = manifest.labels
    if manifest.task == "multilabel":
        return [{"labels": list(labels)} for labels in label_names(probabilities, names)]
    labels = probabilities.argmax(axis=1).tolist()
    return [{"label": names[k], "probability": float(row[k])} for k, row in zip(labels, probabilities, strict=True)]


def _as_map(chosen: Json) -> Json:
    """The same as the plain network's choice."""
    return {f"map_{name}": value for name, value in chosen.items() if name != "probability"}


def decisions(prediction: Prediction, rule: Rule) -> list[Json]:
    """Score, p-value and verdict of each example; `rule` has decided."""
    columns = (prediction.score.tolist(), prediction.p_value.tolist(), prediction.rejected.tolist())
    rows, rate = zip(*columns, _thresholds(prediction, rule), strict=True), rule.false_reject_rate
    return [
        {"score": score, "p_value": p_value, "threshold": threshold, "false_reject_rate": rate, "rejected": rejected}
        for score, p_value, rejected, threshold in rows
    ]


def rule_json(predictor: Predictor) -> Json:
    """What is rejected here, for the model's card: it may differ from what the bundle says."""
    rule = predictor.decides
    found: Json = {"false_reject_rate": rule.false_reject_rate}
    if isinstance(rule, ClassRules):
        thresholds = rule.thresholds(np.arange(predictor.manifest.outputs)).tolist()
        return found | {"thresholds": dict(zip(predictor.manifest.labels, thresholds, strict=True))}
    found["threshold"] = rule.threshold
    return found | {"certified": asdict(rule.certificate)} if isinstance(rule, CertifiedRule) else found


def _thresholds(prediction: Prediction, rule: Rule) -> list[float]:
    """The largest score that would have been accepted, of each example."""
    if not isinstance(rule, ClassRules):
        return [rule.threshold] * len(prediction)
    found: list[float] = rule.thresholds(_labels(prediction)).tolist()
    return found


def _compared_with(prediction: Prediction, rule: Rule) -> list[tuple[int, str]]:
    """How many held-out inputs each example's score is compared with, and which."""
    if not isinstance(rule, ClassRules):
        return [(len(rule.scores), "")] * len(prediction)
    return [(count, " predicted to be of its class or of one like it") for count in rule.examples(_labels(prediction))]


def _labels(prediction: Prediction) -> Array:
    assert prediction.probabilities is not None  # of a classification
    labels: Array = prediction.probabilities.argmax(axis=1)
    return labels


def _reason(decision: Json, name: str, every: int, which: str) -> str:
    """One sentence about a rejection: `every` held-out inputs, `which` they are."""
    below = every + 1 - round(decision["p_value"] * (every + 1))
    unusual = f"higher than that of {below:,} of {every:,} held-out inputs{which}"
    digits = next(d for d in (4, 6, 17) if d == 17 or _differ(decision, d))
    score, threshold = (f"{decision[field]:.{digits}g}" for field in ("score", "threshold"))
    return f"The {name}, {score}, is {unusual} (accepted up to {threshold}): {ADVICE}."


def _differ(decision: Json, digits: int) -> bool:
    """Whether score and threshold read differently with so many digits."""
    return f"{decision['score']:.{digits}g}" != f"{decision['threshold']:.{digits}g}"


def _variance_parts(prediction: Prediction, noises: Sequence[float] | None = None) -> list[Json | None]:
    """What of each example's variances each posterior has; None for a bundle without added weights.

    noises (K,): of a regression, whose outputs have a part of added weights each.
    """
    if prediction.added_variance is None:
        return [None] * len(prediction)
    added = prediction.added_variance.astype(np.float64)
    of_outputs = added[:, np.newaxis]
    if noises is not None:
        added = of_outputs = of_outputs * np.square(noise_ratios(np.array(noises))[1])
    # The sum was rounded: what is left of it may be a little below zero.
    rest = np.maximum(prediction.variance - of_outputs, 0.0)
    columns = zip(rest.tolist(), added.tolist(), strict=True)
    return [{"subnetwork": subnetwork, "added": part} for subnetwork, part in columns]


def _classification(prediction: Prediction, predictor: Predictor, level: float) -> list[Json]:
    """Of one class, or several labels, an example."""
    manifest, sets, parts = predictor.manifest, _sets(prediction, predictor, level), _variance_parts(prediction)
    p, q = prediction.probabilities, prediction.map_probabilities
    total, aleatoric, epistemic = prediction.total, prediction.aleatoric, prediction.epistemic
    assert p is not None
    assert q is not None
    assert total is not None
    assert aleatoric is not None
    assert epistemic is not None
    names, chosen, plain = manifest.labels, chosen_of(p, manifest), chosen_of(q, manifest)
    return [
        {
            **chosen[i],
            "probabilities": dict(zip(names, p[i].tolist(), strict=True)),
            "map_probabilities": dict(zip(names, q[i].tolist(), strict=True)),
            **_as_map(plain[i]),
            "logit_mean": prediction.mean[i].tolist(),
            "logit_variance": prediction.variance[i].tolist(),
            "variance_parts": parts[i],
            "uncertainty": {
                "total": float(total[i]),
                "aleatoric": float(aleatoric[i]),
                "epistemic": float(epistemic[i]),
            },
            "prediction_set": sets[i],
        }
        for i in range(len(p))
    ]


def _label_set(members: Array, names: Sequence[str], level: float) -> Json:
    """Which labels an example surely has or has not; members (K, 2)."""
    absent, present = members[:, 0], members[:, 1]
    groups = {"present": present & ~absent, "absent": absent & ~present, "undecided": present & absent}
    found = {title: [names[k] for k in np.flatnonzero(group).tolist()] for title, group in groups.items()}
    return {"level": level, **found}


def _sets(prediction: Prediction, predictor: Predictor, level: float) -> list[Json]:
    """The prediction set of each example, its classes in descending order of probability."""
    p = prediction.probabilities
    assert p is not None  # of a classification
    assert predictor.sets is not None
    names, members = predictor.manifest.labels, predictor.sets.members(p, level)
    if prediction.multilabel:
        return [_label_set(member, names, level) for member in members]
    found: list[Json] = []
    for row, member in zip(p, members, strict=True):
        inside = np.flatnonzero(member)
        ordered = inside[np.argsort(-row[inside], kind="stable")].tolist()
        found.append({"level": level, "labels": [names[k] for k in ordered]})
    return found


def _regression(prediction: Prediction, predictor: Predictor, coverage: Coverage) -> list[Json]:
    assert prediction.std is not None
    kind, low, high = coverage.intervals(prediction, predictor)
    manifest, epistemic = predictor.manifest, np.sqrt(prediction.variance.astype(np.float64))
    parts = _variance_parts(prediction, manifest.noises)
    return [
        {
            "mean": prediction.mean[i].tolist(),
            "epistemic_std": epistemic[i].tolist(),
            "variance_parts": parts[i],
            "names": manifest.class_names,
            "noise_std": manifest.noises,
            "std": prediction.std[i].tolist(),
            "interval": {"level": coverage.level, "low": low[i].tolist(), "high": high[i].tolist(), "kind": kind},
        }
        for i in range(len(prediction.mean))
    ]
