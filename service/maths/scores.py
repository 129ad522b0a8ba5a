"""Out-of-distribution scores: one number an example, larger the less an input resembles the calibration data.

`predictive_entropy` (Daxberger et al., ICML 2021) comes with the probabilities, `distance` (Liu et al. (SNGP), NeurIPS
2020, post hoc) from the graph, which computes it from the network's own activations
(`demur.offline.features.added_weights`), and `epistemic_std` from the variances of a regression. Pure NumPy, float64.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

from .predictive import noise_ratios

Array = npt.NDArray[Any]
FeatureScoreName = Literal["distance"]
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
SCORES: dict[str, Score] = {score.name: score for score in (PREDICTIVE_ENTROPY, DISTANCE, EPISTEMIC_STD)}


def epistemic_std(variance: Array, sigma_noise: Array) -> Array:
    """sqrt(mean_k v_k / r_k^2), r_k = sigma_k / sigma, sigma the geometric mean; (B, K), (K,) -> (B,)."""
    _, ratios = noise_ratios(sigma_noise)
    score: Array = np.sqrt((np.asarray(variance, np.float64) / np.square(ratios)).mean(axis=-1))
    return score
