"""Out-of-distribution scores: from what a prediction computes anyway to one number an example. Pure NumPy, float64.

A score is larger the less an input resembles the calibration data. Symbols: f (B, K) the network's outputs, v (B, K)
their variances, T the temperature, p (B, K) the probabilities as served, q = softmax(f / T) those of the plain network,
c the most probable class of p, H the entropy; of a regression sigma_k the noise of output k, sigma their geometric
mean, r_k = sigma_k / sigma.

The feature score `distance` comes from the graph, which computes it from the network's own activations
(`demur.offline.features.added_weights`).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

from .score_outputs import ClassOutputs, Outputs, RegressionOutputs

Array = npt.NDArray[Any]
FeatureScoreName = Literal["distance"]
SingleScoreName = Literal[
    "predictive_entropy",
    "top_probability",
    "epistemic_entropy",
    "logit_variance",
    "class_variance",
    "relative_variance",
    "energy",
    "generalised_entropy",
    "max_logit",
    FeatureScoreName,
    "epistemic_std",
    "predictive_std",
]
ScoreName = Literal[SingleScoreName, "surprise"]  # the last one is made of several
EXPONENT, MOST_CLASSES = 0.1, 100  # of the generalised entropy, as its authors chose them
LEAST_SQUARE = 1e-30  # keeps a quotient finite where all logits are the same


class Scoring(Protocol):
    """One score, or several as one."""

    @property
    def name(self) -> ScoreName:
        """As the manifest has it."""
        ...

    def scored(self, outputs: Outputs) -> tuple[Array, Array | None]:
        """The score (B,) and, of several as one, the place of the component that it is, (B,), else None."""
        ...


@dataclass(frozen=True)
class Score:
    """One score. title: what a sentence calls it; unit: "" for none; equation, in the symbols above; source."""

    name: SingleScoreName
    title: str
    unit: str
    equation: str
    source: str
    function: Callable[[Any], Array]

    def scored(self, outputs: Outputs) -> tuple[Array, None]:
        """The score (B,); nothing leads."""
        return self.function(outputs), None


def regression_score(outputs: RegressionOutputs) -> Array:
    """Epistemic standard deviation, root mean square over the outputs, each relative to its noise, (B,)."""
    score: Array = np.sqrt(outputs.comparable[1].mean(axis=-1))
    return score


def _top_probability(outputs: ClassOutputs) -> Array:
    score: Array = 1 - outputs.probabilities[0].max(axis=1)
    return score


def _logit_variance(outputs: ClassOutputs) -> Array:
    score: Array = np.asarray(outputs.variance, np.float64).mean(axis=1)
    return score


def _relative_variance(outputs: ClassOutputs) -> Array:
    distance = outputs.logits[outputs.chosen] - outputs.logits.mean(axis=1)
    score: Array = outputs.chosen_variance / np.maximum(distance * distance, LEAST_SQUARE)
    return score


def _energy(outputs: ClassOutputs) -> Array:
    largest, temperature = outputs.largest_logit, outputs.temperature
    shifted = (outputs.logits - largest[:, np.newaxis]) / temperature
    score: Array = -temperature * np.log(np.exp(shifted).sum(axis=1)) - largest
    return score


def _generalised_entropy(outputs: ClassOutputs) -> Array:
    p = outputs.probabilities[0]
    if p.shape[1] > MOST_CLASSES:
        p = np.partition(p, -MOST_CLASSES, axis=1)[:, -MOST_CLASSES:]
    score: Array = ((p * (1 - p)) ** EXPONENT).sum(axis=1)
    return score


def _predictive_std(outputs: RegressionOutputs) -> Array:
    score: Array = np.sqrt(np.square(regression_score(outputs)) + outputs.comparable[0] ** 2)
    return score


PREDICTIVE_ENTROPY = Score(
    "predictive_entropy",
    "predictive entropy",
    "nats",
    "H(p)",
    "Daxberger et al., ICML 2021",
    lambda outputs: outputs.entropies[0],
)
EPISTEMIC_STD = Score(
    "epistemic_std",
    "epistemic standard deviation",
    "target's units",
    "sqrt(mean_k v_k / r_k^2)",
    "Daxberger et al., ICML 2021",
    regression_score,
)
CLASSIFICATION_SCORES: dict[str, Score] = {
    score.name: score
    for score in (
        PREDICTIVE_ENTROPY,
        Score(
            "top_probability",
            "distance of the top probability from 1",
            "",
            "1 - max_k p_k",
            "Hendrycks and Gimpel, ICLR 2017",
            _top_probability,
        ),
        Score(
            "epistemic_entropy",
            "epistemic part of the entropy",
            "nats",
            "max(H(p) - H(q), 0)",
            "Depeweg et al., ICML 2018, with the plug-in value of the expected entropy",
            lambda outputs: outputs.entropies[2],
        ),
        Score(
            "logit_variance",
            "mean variance of the logits",
            "squared logits",
            "mean_k v_k",
            "Daxberger et al., ICML 2021",
            _logit_variance,
        ),
        Score(
            "class_variance",
            "variance of the predicted class's logit",
            "squared logits",
            "v_c",
            "Daxberger et al., ICML 2021",
            lambda outputs: outputs.chosen_variance,
        ),
        Score(
            "relative_variance",
            "relative variance of the predicted class's logit",
            "",
            "v_c / (f_c - mean_k f_k)^2",
            "the squared coefficient of variation of the centred logit",
            _relative_variance,
        ),
        Score("energy", "energy", "logits", "-T log sum_k exp(f_k / T)", "Liu et al., NeurIPS 2020", _energy),
        Score(
            "generalised_entropy",
            "generalised entropy",
            "",
            "sum over the 100 largest p_k of (p_k (1 - p_k))^0.1",
            "Liu, Lochman and Zach (GEN), CVPR 2023",
            _generalised_entropy,
        ),
        Score(
            "max_logit",
            "negative largest logit",
            "logits",
            "-max_k f_k",
            "Hendrycks et al., ICML 2022",
            lambda outputs: -outputs.largest_logit,
        ),
    )
}
LABEL_SCORES = {
    name: CLASSIFICATION_SCORES[name] for name in ("predictive_entropy", "epistemic_entropy", "logit_variance")
}
"""Of several labels an example: what needs no most probable class."""
FEATURE_SCORES: dict[str, Score] = {
    "distance": Score(
        "distance",
        "distance from the training data",
        "",
        "v(t), the variance of added weights of prior variance 1",
        "Liu et al. (SNGP), NeurIPS 2020, post hoc",
        lambda outputs: outputs.feature("distance"),
    )
}
REGRESSION_SCORES: dict[str, Score] = {
    score.name: score
    for score in (
        EPISTEMIC_STD,
        Score(
            "predictive_std",
            "predictive standard deviation",
            "target's units",
            "sqrt(mean_k v_k / r_k^2 + sigma^2)",
            "Daxberger et al., ICML 2021",
            _predictive_std,
        ),
    )
}
SCORES_OF: dict[str, dict[str, Score]] = {
    "classification": CLASSIFICATION_SCORES,
    "multilabel": LABEL_SCORES,
    "regression": REGRESSION_SCORES,
}
"""The single scores of each task, beside the feature scores."""
SCORES = CLASSIFICATION_SCORES | FEATURE_SCORES | REGRESSION_SCORES
