"""Out-of-distribution scores: one number an example, larger the less an input resembles the calibration data.

`predictive_entropy` (Daxberger et al., ICML 2021) comes with the probabilities, `distance` (Liu et al. (SNGP), NeurIPS
2020, post hoc) and the likeness to named mistakes from the graph, which computes them from the network's own
activations (`demur.offline.features.added_weights`), `epistemic_std` from the variances of a regression. Pure NumPy,
float64.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

from .predictive import noise_ratios

Array = npt.NDArray[Any]
MistakeName = Literal[
    "inverted",
    "upside-down",
    "solarised",
    "channels-swapped",
    "columns-reversed",
    "columns-exchanged",
    "column-times-10",
    "column-by-10",
]
FeatureScoreName = Literal["distance", MistakeName]
SingleScoreName = Literal["predictive_entropy", FeatureScoreName, "epistemic_std"]
ScoreName = Literal[SingleScoreName, "surprise"]  # the last one is made of several
NO_FEATURES: Mapping[str, Array] = MappingProxyType({})


class Scoring(Protocol):
    """One score, or several as one."""

    @property
    def name(self) -> ScoreName:
        """As the manifest has it."""
        ...

    def scored(self, singles: Mapping[str, Array]) -> tuple[Array, Array | None]:
        """The score (B,) and, of several as one, the place of the component that it is, (B,), else None.

        singles: the single scores (B,) that it needs, by name.
        """
        ...


@dataclass(frozen=True)
class Score:
    """A single score. title: what a sentence calls it; unit: "" for none."""

    name: SingleScoreName
    title: str
    unit: str

    def scored(self, singles: Mapping[str, Array]) -> tuple[Array, None]:
        """The score (B,); nothing leads."""
        return np.asarray(singles[self.name], np.float64), None


PREDICTIVE_ENTROPY = Score("predictive_entropy", "predictive entropy", "nats")
DISTANCE = Score("distance", "distance from the training data", "")
EPISTEMIC_STD = Score("epistemic_std", "epistemic standard deviation", "target's units")
# What an input looks like, that is above 0 for it (`demur.offline.features.mistakes`).
MISTAKES: dict[MistakeName, str] = {
    "inverted": "inverted colours",
    "upside-down": "an image upside down",
    "solarised": "a solarised image",
    "channels-swapped": "channels in the other order",
    "columns-reversed": "columns in another order",
    "columns-exchanged": "columns in another order",
    "column-times-10": "a column in another unit",
    "column-by-10": "a column in another unit",
}
LIKENESSES = tuple(Score(name, f"likeness to {words}", "") for name, words in MISTAKES.items())
SCORES: dict[str, Score] = {score.name: score for score in (PREDICTIVE_ENTROPY, DISTANCE, EPISTEMIC_STD, *LIKENESSES)}


def likeliest_mistake(features: Mapping[str, Array]) -> Array | None:
    """The place, among the mistakes in `features` (B,), of what each example looks like most, -1 for nothing: (B,);
    None without any."""
    if MISTAKES.keys().isdisjoint(features):
        return None
    likeness = np.array([values for name, values in features.items() if name in MISTAKES])
    return np.where(likeness.max(axis=0) > 0, likeness.argmax(axis=0), -1)


def epistemic_std(variance: Array, sigma_noise: Array) -> Array:
    """sqrt(mean_k v_k / r_k^2), r_k = sigma_k / sigma, sigma the geometric mean; (B, K), (K,) -> (B,)."""
    _, ratios = noise_ratios(sigma_noise)
    score: Array = np.sqrt((np.asarray(variance, np.float64) / np.square(ratios)).mean(axis=-1))
    return score
