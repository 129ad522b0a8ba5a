"""What a prediction holds, and how outputs and their variances become one."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..bundle import Manifest
from ..maths.disagreement import COMPARED
from ..maths.prediction_sets import LIKELY
from ..maths.predictive import (
    Link,
    class_probabilities,
    entropy,
    entropy_parts,
    label_entropy,
    predictive_std,
)
from ..maths.scores import EPISTEMIC_STD, PREDICTIVE_ENTROPY, SCORES, Scoring, epistemic_std, likeliest_mistake
from .graph import GraphOutputs

Array = npt.NDArray[Any]


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
    sigma_noise^2), of each output its own; noise_scale (B, K) float32, by which sigma_noise is multiplied there, where
    the noise depends on the input. out_of_range (B,) bool, where the bundle says what inputs to expect: whether the
    example holds values far outside.
    leading (B,) int, with a score made of several: the place of the component that it is.
    mistake (B,) int, where the graph can tell mistakes: the place in `Manifest.mistakes` of the one that the example
    looks like, -1 for none.
    added_variance (B,), where the bundle has added weights: the part of each output's variance that is theirs; of a
    regression, divided by r_k^2 (`demur.service.maths.predictive.noise_ratios`). names (K): of the classes, labels or
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
    mistake: Array | None = None
    added_variance: Array | None = None
    noise_scale: Array | None = None
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
        """The predictions as a pandas `DataFrame`, in the first columns of `demur score`; `index`: that of the frame.

        Needs pandas; raises `ImportError` without.
        """
        try:
            import pandas as pd
        except ImportError:
            raise ImportError("to_frame needs pandas: in a checkout of Demur, pip install '.[frames]'") from None
        if index is not None and len(index) != len(self):
            raise ValueError(f"index: found {len(index)} labels, expected one for each of the {len(self)} predictions")
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
    def compared(self) -> dict[str, Array]:
        """The arrays by which `Differences` tells two predictions apart."""
        return {name: value for name in COMPARED if (value := getattr(self, name)) is not None}

    @property
    def finite(self) -> Array:
        """(B,) bool: whether the network's output is finite, and with it everything else about the example.

        The score tells too: activations that are not finite may make a feature score of them, and finite outputs.
        """
        return finite_rows(self.mean, self.variance if self.std is None else self.std) & np.isfinite(self.score)


def label_names(probabilities: Array, names: Sequence[str]) -> Array:
    """The names of the labels that each example is said to have, (B, K) -> (B,) of tuples."""
    found = np.empty(len(probabilities), object)
    for i, row in enumerate(names_of(probabilities >= LIKELY, names)):
        found[i] = tuple(row)
    return found


def names_of(members: Array, names: Sequence[str]) -> list[list[str]]:
    """The names of each example's members, (B, K) bool."""
    return [[names[k] for k in np.flatnonzero(row).tolist()] for row in members]


def _slice(prediction: Prediction, start: int, stop: int) -> Prediction:
    found: dict[str, Any] = {
        name: values if isinstance(values, tuple | bool) else values[start:stop]
        for name, values in vars(prediction).items()
        if values is not None
    }
    return Prediction(**found)


def _concatenate(parts: Sequence[Prediction]) -> Prediction:
    found: dict[str, Any] = {
        name: values if isinstance(values, tuple | bool) else np.concatenate([getattr(part, name) for part in parts])
        for name, values in vars(parts[0]).items()
        if values is not None
    }
    return Prediction(**found)


def check_finite(prediction: Prediction, first: int = 0) -> None:
    """Raises `NonFinitePrediction` for the first example whose output is not finite; they are counted from `first`."""
    finite = prediction.finite
    if not finite.all():
        raise NonFinitePrediction(first + int(np.argmin(finite)))


@dataclass(frozen=True)
class Predictive:
    """How outputs and their variances become everything about a prediction but the decision.

    noises (K,): of a regression; None means classes or labels. temperature; map_temperature: of the plain network, None
    for the same. link: that of the bundle (`link_approx`). scoring: what makes the score; None: predictive entropy, of
    a regression the epistemic standard deviation. names (K): of the outputs.
    """

    noises: Array | None = None
    temperature: float = 1.0
    map_temperature: float | None = None
    link: Link = "probit"
    scoring: Scoring | None = None
    names: tuple[str, ...] | None = None

    @classmethod
    def of(cls, manifest: Manifest, scoring: Scoring | None = None) -> "Predictive":
        """Of a bundle; scoring: its score where it is made of several, else the one that the manifest names."""
        return cls(
            None if manifest.noises is None else np.array(manifest.noises),
            manifest.temperature,
            manifest.map_temperature,
            manifest.link,
            scoring or SCORES[manifest.calibration.score],
            manifest.labels,
        )

    @property
    def plain_temperature(self) -> float:
        """That of the plain network."""
        return self.temperature if self.map_temperature is None else self.map_temperature

    @property
    def score(self) -> Scoring:
        """What makes the score."""
        return self.scoring or (PREDICTIVE_ENTROPY if self.noises is None else EPISTEMIC_STD)

    def values(self, outputs: GraphOutputs) -> dict[str, Any]:
        """The fields of a `Prediction` without the decision."""
        mean, variance = outputs.mean, outputs.variance
        found = {"mean": mean, "variance": variance, "added_variance": outputs.added, "names": self.names}
        found["mistake"] = likeliest_mistake(outputs.features)
        if self.noises is not None:
            singles = outputs.features
            if self.score.name == EPISTEMIC_STD.name:
                singles = {EPISTEMIC_STD.name: epistemic_std(variance, self.noises)}
            score, _ = self.score.scored(singles)
            std = predictive_std(variance, self.noises, outputs.noise_scale)
            return found | {"score": score, "std": std, "noise_scale": outputs.noise_scale}
        probabilities = class_probabilities(mean, variance, self.temperature, self.link, self.plain_temperature)
        several = self.link == "probit-sigmoid"
        total, aleatoric, epistemic = entropy_parts(probabilities, label_entropy if several else entropy)
        score, leading = self.score.scored({**outputs.features, PREDICTIVE_ENTROPY.name: total})
        return found | {
            "score": score,
            "probabilities": probabilities[0],
            "map_probabilities": probabilities[1],
            "total": total,
            "aleatoric": aleatoric,
            "epistemic": epistemic,
            "multilabel": several,
            "leading": leading,
        }

    def undecided(self, outputs: GraphOutputs) -> Prediction:
        """Everything but the decision: p-values are 1 and nothing is rejected."""
        count = len(outputs.mean)
        return Prediction(**self.values(outputs), p_value=np.ones(count), rejected=np.zeros(count, bool))


def finite_rows(*outputs: Array) -> Array:
    """(B,) bool: whether all of an example's outputs, (B, K) each, are finite."""
    every = np.logical_and.reduce  # `all` takes as long again before it calls it
    return np.asarray(every([every(np.isfinite(one), axis=1) for one in outputs]))
