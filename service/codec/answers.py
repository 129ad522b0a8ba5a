"""Prediction -> the native API's JSON answer."""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from service.bundle import Manifest
from service.inference.predictor import PlainPrediction, Prediction, Predictor
from service.maths.predictive import gaussian_interval
from service.maths.rejection import RejectionRule

Array = npt.NDArray[Any]
Json = dict[str, Any]
SCORE_NAMES = {"predictive_entropy": "predictive entropy", "epistemic_std": "epistemic standard deviation"}
CASCADE_SCORE = "score of the cascade"
ADVICE = "the input is unlike those that the model knows, so check it before you rely on this answer"


def class_names(manifest: Manifest) -> list[str]:
    """The bundle's class names, or "0", "1", ... where it has none."""
    return list(manifest.class_names or map(str, range(manifest.outputs)))


def predictions_json(
    prediction: Prediction | PlainPrediction, predictor: Predictor, rule: RejectionRule, interval_level: float
) -> list[Json]:
    """One JSON object an example, as `service.schemas` describes them; `rule` has decided."""
    if isinstance(prediction, PlainPrediction):
        return _plain(prediction, predictor.manifest)
    if prediction.probabilities is not None:
        examples = _classification(prediction, class_names(predictor.manifest))
    else:
        examples = _regression(prediction, predictor.manifest, interval_level)
    name = SCORE_NAMES[predictor.manifest.calibration.score]
    explain = _explanation(rule, name if predictor.first_stage is None else CASCADE_SCORE)
    return [
        {**example, "ood": {**decision, "reason": explain(decision) if decision["rejected"] else None}}
        for example, decision in zip(examples, decisions(prediction, rule), strict=True)
    ]


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
        unknown = dict.fromkeys(("epistemic_std", "std", "interval", "ood"))
        return [{"mean": mean, "noise_std": manifest.sigma_noise, **unknown} for mean in means]
    names, labels = class_names(manifest), q.argmax(axis=1).tolist()
    unknown = dict.fromkeys(("logit_variance", "uncertainty", "ood"))
    return [
        {
            "label": names[label],
            "probability": probabilities[label],
            "probabilities": dict(zip(names, probabilities, strict=True)),
            "map_probabilities": dict(zip(names, probabilities, strict=True)),
            "map_label": names[label],
            "logit_mean": mean,
            **unknown,
        }
        for mean, label, probabilities in zip(means, labels, q.tolist(), strict=True)
    ]


def decisions(prediction: Prediction, rule: RejectionRule) -> list[Json]:
    """Score, p-value and verdict of each example; `rule` has decided."""
    rows = zip(prediction.score.tolist(), prediction.p_value.tolist(), prediction.rejected.tolist(), strict=True)
    threshold, rate = rule.threshold, rule.false_reject_rate
    return [
        {"score": score, "p_value": p_value, "threshold": threshold, "false_reject_rate": rate, "rejected": rejected}
        for score, p_value, rejected in rows
    ]


def _explanation(rule: RejectionRule, name: str) -> Callable[[Json], str]:
    """What makes the sentence about a rejection from its decision."""
    every = len(rule.scores)

    def explain(decision: Json) -> str:
        below = every + 1 - round(decision["p_value"] * (every + 1))
        unusual = f"higher than that of {below:,} of {every:,} held-out inputs"
        accepted = f"accepted up to {decision['threshold']:.4g}"
        return f"The {name}, {decision['score']:.4g}, is {unusual} ({accepted}): {ADVICE}."

    return explain


def _classification(prediction: Prediction, names: list[str]) -> list[Json]:
    p, q = prediction.probabilities, prediction.map_probabilities
    total, aleatoric, epistemic = prediction.total, prediction.aleatoric, prediction.epistemic
    assert p is not None
    assert q is not None
    assert total is not None
    assert aleatoric is not None
    assert epistemic is not None
    labels, map_labels = p.argmax(axis=1), q.argmax(axis=1)
    return [
        {
            "label": names[labels[i]],
            "probability": float(p[i, labels[i]]),
            "probabilities": dict(zip(names, p[i].tolist(), strict=True)),
            "map_probabilities": dict(zip(names, q[i].tolist(), strict=True)),
            "map_label": names[map_labels[i]],
            "logit_mean": prediction.mean[i].tolist(),
            "logit_variance": prediction.variance[i].tolist(),
            "uncertainty": {
                "total": float(total[i]),
                "aleatoric": float(aleatoric[i]),
                "epistemic": float(epistemic[i]),
            },
        }
        for i in range(len(p))
    ]


def _regression(prediction: Prediction, manifest: Manifest, level: float) -> list[Json]:
    assert prediction.std is not None
    low, high = gaussian_interval(prediction.mean, prediction.std, level)
    epistemic = np.sqrt(prediction.variance.astype(np.float64))
    return [
        {
            "mean": prediction.mean[i].tolist(),
            "epistemic_std": epistemic[i].tolist(),
            "noise_std": manifest.sigma_noise,
            "std": prediction.std[i].tolist(),
            "interval": {"level": level, "low": low[i].tolist(), "high": high[i].tolist()},
        }
        for i in range(len(prediction.mean))
    ]
