"""What a prediction holds, and how outputs and their variances become one."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from probity.service.bundle import Manifest
from probity.service.inference.deciding import Rule
from probity.service.maths.class_rules import ClassRules
from probity.service.maths.prediction_sets import LIKELY
from probity.service.maths.predictive import Link, class_probabilities, predictive_std
from probity.service.maths.score_outputs import NO_FEATURES, RegressionOutputs, class_outputs
from probity.service.maths.scores import EPISTEMIC_STD, PREDICTIVE_ENTROPY, Scoring

Array = npt.NDArray[Any]
P = TypeVar("P", "Prediction", "PlainPrediction")


class NonFinitePrediction(ValueError):
    """The network's output is not finite for the example at `index`."""

    def __init__(self, index: int) -> None:
        self.index = index
        super().__init__(f"the network's output for example {index} is not finite")

    def __reduce__(self) -> tuple[type["NonFinitePrediction"], tuple[int]]:
        return NonFinitePrediction, (self.index,)


@dataclass(frozen=True)
class Prediction:
    """A batch of B predictions with K outputs.

    mean (B, K) float32: network outputs (logits before any temperature, or regression means); variance (B, K)
    float32: diagonal of J Sigma J^T; score, p_value (B,) and rejected (B,) bool: the out-of-distribution
    decision. Classification only: probabilities and map_probabilities (B, K), entropies total, aleatoric and
    epistemic (B,) in nats. The same where an example has several labels (`multilabel`): the probabilities are those of
    having each label, and the entropies are summed over the labels. Regression only: std (B, K), sqrt(variance +
    sigma_noise^2), of each output its own. out_of_range (B,) bool, where the bundle says what inputs to expect: whether
    the example holds values far outside.
    leading (B,) int, with a score made of several: the place of the component that it is mainly made of.
    added_variance (B,), where the bundle has added weights: the part of each output's variance that is theirs; of a
    regression, divided by r_k^2 (`probity.service.maths.predictive.noise_ratios`). names (K): of the classes, labels or
    values.
    """

    mean: Array
    variance: Array
    score: Array
    p_value: Array
    rejected: Array
    probabilities: Array | None = None
    map_probabilities: Array | None = None
    total: Array | None = None
    aleatoric: Array | None = None
    epistemic: Array | None = None
    std: Array | None = None
    out_of_range: Array | None = None
    leading: Array | None = None
    added_variance: Array | None = None
    names: tuple[str, ...] | None = None
    multilabel: bool = False

    def __len__(self) -> int:
        return len(self.mean)

    @property
    def labels(self) -> Array | None:
        """(B,): the name of each example's most probable class; of several labels an example, a tuple of the names of
        those that it has with a probability of at least 0.5. None for a regression."""
        if self.probabilities is None:
            return None
        if self.multilabel:
            return label_names(self.probabilities, self._names)
        found: Array = np.array(self._names)[self.probabilities.argmax(axis=1)]
        return found

    def to_frame(self, index: Any = None) -> Any:
        """The predictions as a pandas `DataFrame`, in the columns of `probity score`; `index`: that of the frame.

        Needs pandas; raises `ImportError` without.
        """
        try:
            import pandas as pd
        except ImportError:
            raise ImportError("to_frame needs pandas: in a checkout of Probity, pip install '.[frames]'") from None
        return pd.DataFrame(self._columns(), index=index)

    def _columns(self) -> dict[str, Array]:
        decision = {"score": self.score, "p_value": self.p_value, "rejected": self.rejected}
        if self.probabilities is None:
            assert self.std is not None  # of a regression
            one = self.mean.shape[1] == 1
            each = {"mean": np.asarray(self.mean, np.float64), "std": self.std}
            numbers = {
                name if one else f"{name}_{title}": values[:, k]
                for name, values in each.items()
                for k, title in enumerate(self._names)
            }
            return numbers | decision
        labels, p = self.labels, self.probabilities
        assert labels is not None  # of a classification
        by_class = {f"probability_{name}": p[:, k] for k, name in enumerate(self._names)}
        if self.multilabel:
            return {"labels": labels} | by_class | decision
        return {"label": labels, "probability": p.max(axis=1)} | by_class | decision

    @property
    def _names(self) -> tuple[str, ...]:
        return self.names or tuple(map(str, range(self.mean.shape[1])))

    def rows(self, start: int, stop: int) -> "Prediction":
        """Examples `start` to `stop`."""
        return _slice(self, start, stop)

    @classmethod
    def concatenate(cls, parts: "Sequence[Prediction]") -> "Prediction":
        """The examples of all parts, in order."""
        return _concatenate(parts)

    @property
    def finite(self) -> Array:
        """(B,) bool: whether the network's output is finite, and with it everything else about the example.

        The score tells too: activations that are not finite may make a feature score of them, and finite outputs.
        """
        return finite_rows(self.mean, self.variance) & np.isfinite(self.score)


@dataclass(frozen=True)
class PlainPrediction:
    """The output of the network alone, without uncertainty: mean (B, K) float32, and for a classification its
    probabilities map_probabilities (B, K); out_of_range (B,) bool as in `Prediction`."""

    mean: Array
    map_probabilities: Array | None = None
    out_of_range: Array | None = None

    def __len__(self) -> int:
        return len(self.mean)

    def rows(self, start: int, stop: int) -> "PlainPrediction":
        """Examples `start` to `stop`."""
        return _slice(self, start, stop)

    @classmethod
    def concatenate(cls, parts: "Sequence[PlainPrediction]") -> "PlainPrediction":
        """The examples of all parts, in order."""
        return _concatenate(parts)

    @property
    def finite(self) -> Array:
        """(B,) bool: whether the network's output is finite."""
        return finite_rows(self.mean)


def label_names(probabilities: Array, names: Sequence[str]) -> Array:
    """The names of the labels that each example is said to have, (B, K) -> (B,) of tuples."""
    found = np.empty(len(probabilities), object)
    for i, likely in enumerate(probabilities >= LIKELY):
        found[i] = tuple(names[k] for k in np.flatnonzero(likely).tolist())
    return found


def _slice(prediction: P, start: int, stop: int) -> P:
    found: dict[str, Any] = {
        name: values if isinstance(values, tuple | bool) else values[start:stop]
        for name, values in vars(prediction).items()
        if values is not None
    }
    return type(prediction)(**found)


def _concatenate(parts: Sequence[P]) -> P:
    found: dict[str, Any] = {
        name: values if isinstance(values, tuple | bool) else np.concatenate([getattr(part, name) for part in parts])
        for name, values in vars(parts[0]).items()
        if values is not None
    }
    return type(parts[0])(**found)


def check_finite(prediction: Prediction | PlainPrediction) -> None:
    """Raises `NonFinitePrediction` for the first example whose output is not finite."""
    finite = prediction.finite
    if not finite.all():
        raise NonFinitePrediction(int(np.argmin(finite)))


def decide(
    mean: Array,
    variance: Array,
    manifest: Manifest,
    rule: Rule,
    out_of_range: Array | None = None,
    scoring: Scoring | None = None,
    features: Mapping[str, Array] = NO_FEATURES,
    added_variance: Array | None = None,
) -> Prediction:
    """From outputs and their variances to probabilities, score and decision; mean, variance (B, K).

    What is not finite is rejected. scoring, features: as for `uncertainties`; added_variance (B,): a part of it.
    """
    found = uncertainties(
        mean,
        variance,
        None if manifest.noises is None else np.array(manifest.noises),
        manifest.temperature,
        scoring,
        features,
        manifest.link,
        manifest.map_temperature,
    )
    score = found.pop("score")
    finite = finite_rows(mean, variance) & np.isfinite(score)
    if not finite.all():
        score = np.where(finite, score, np.inf)
    p_value, rejected = _decision(rule, score, found.get("probabilities"))
    return Prediction(
        mean,
        variance,
        score,
        p_value=p_value,
        rejected=rejected | ~finite,  # even where the threshold is infinite
        out_of_range=out_of_range,
        added_variance=added_variance,
        names=manifest.labels,
        **found,
    )


def decided_by(rule: Rule, prediction: Prediction) -> Prediction:
    """The same prediction with the decisions of another rule over the same calibration scores."""
    p_value, rejected = _decision(rule, prediction.score, prediction.probabilities)
    return replace(prediction, p_value=p_value, rejected=rejected | ~prediction.finite)


def _decision(rule: Rule, score: Array, probabilities: Array | None) -> tuple[Array, Array]:
    """p-values and verdicts, (B,) both."""
    if not isinstance(rule, ClassRules):
        return rule.p_value(score), rule.rejected(score)
    assert probabilities is not None  # of a classification
    labels = probabilities.argmax(axis=1)
    return rule.p_values(score, labels), np.asarray(score > rule.thresholds(labels))


def undecided_prediction(
    mean: Array,
    variance: Array,
    sigma_noise: Array | None,
    temperature: float,
    scoring: Scoring | None = None,
    features: Mapping[str, Array] = NO_FEATURES,
    link: Link = "probit",
    map_temperature: float | None = None,
) -> Prediction:
    """Everything about a prediction but the decision: p-values are 1 and nothing is rejected.

    `sigma_noise` None means classification; scoring, features, link, map_temperature: as for `uncertainties`.
    """
    found = uncertainties(mean, variance, sigma_noise, temperature, scoring, features, link, map_temperature)
    return Prediction(mean, variance, p_value=np.ones(len(mean)), rejected=np.zeros(len(mean), bool), **found)


def uncertainties(
    mean: Array,
    variance: Array,
    sigma_noise: Array | None,
    temperature: float,
    scoring: Scoring | None = None,
    features: Mapping[str, Array] = NO_FEATURES,
    link: Link = "probit",
    map_temperature: float | None = None,
) -> dict[str, Any]:
    """The score, and the fields of a `Prediction` that only its task has.

    scoring: what makes the score; None: predictive entropy, of a regression the epistemic standard deviation.
    features: the feature scores that the graph gave, (B,) each, by name. link: that of the bundle (`link_approx`).
    map_temperature: of the plain network; None: `temperature`.
    """
    map_temperature = temperature if map_temperature is None else map_temperature
    if sigma_noise is not None:
        score, _ = (scoring or EPISTEMIC_STD).scored(RegressionOutputs(variance, sigma_noise, features))
        return {"score": score, "std": predictive_std(variance, sigma_noise)}
    probabilities = class_probabilities(mean, variance, temperature, link, map_temperature)
    outputs = class_outputs(mean, variance, probabilities, map_temperature, features, link)
    score, leading = (scoring or PREDICTIVE_ENTROPY).scored(outputs)
    total, aleatoric, epistemic = outputs.entropies
    found = {
        "score": score,
        "probabilities": probabilities[0],
        "map_probabilities": probabilities[1],
        "total": total,
        "aleatoric": aleatoric,
        "epistemic": epistemic,
        "multilabel": link == "probit-sigmoid",
    }
    return found if leading is None else found | {"leading": leading}


def finite_rows(*outputs: Array) -> Array:
    """(B,) bool: whether all of an example's outputs, (B, K) each, are finite."""
    usable = np.isfinite(outputs[0])
    for other in outputs[1:]:
        usable &= np.isfinite(other)
    return np.asarray(usable.all(axis=1))
