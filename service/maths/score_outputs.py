"""What out-of-distribution scores are made of: outputs, variances, probabilities, feature scores. Pure NumPy, float64.

Symbols as in `demur.service.maths.scores`.
"""

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from .predictive import Link, entropy_parts, label_entropy, noise_ratios

Array = npt.NDArray[Any]
NO_FEATURES: Mapping[str, Array] = MappingProxyType({})


@dataclass(frozen=True)
class ClassOutputs:
    """What a classification's scores are made of: mean, variance (B, K), probabilities (2, B, K) with and without the
    posterior, as `demur.service.maths.predictive.class_probabilities` gives them, and the temperature.

    features: the feature scores that the graph computes, (B,) each, by name; none by default.
    """

    mean: Array
    variance: Array
    probabilities: Array
    temperature: float
    features: Mapping[str, Array] = field(default_factory=dict)

    @functools.cached_property
    def entropies(self) -> tuple[Array, Array, Array]:
        """Total, aleatoric and epistemic, (B,) each, nats."""
        return entropy_parts(self.probabilities)

    @functools.cached_property
    def logits(self) -> Array:
        """f in float64."""
        return np.asarray(self.mean, np.float64)

    @functools.cached_property
    def largest_logit(self) -> Array:
        """max_k f_k, (B,)."""
        largest: Array = self.logits.max(axis=1)
        return largest

    @functools.cached_property
    def chosen(self) -> tuple[Array, Array]:
        """Where the most probable class of each example stands in a (B, K) array."""
        classes = self.probabilities[0].argmax(axis=1)
        return np.arange(len(classes)), classes

    @functools.cached_property
    def chosen_variance(self) -> Array:
        """v_c, (B,)."""
        return np.asarray(self.variance[self.chosen], np.float64)

    def feature(self, name: str) -> Array:
        """The feature score called `name`, (B,)."""
        score: Array = np.asarray(self.features[name], np.float64)
        return score


@dataclass(frozen=True)
class LabelOutputs(ClassOutputs):
    """The same of K labels that an example has or has not; probabilities (2, B, K) are those of having them."""

    @functools.cached_property
    def entropies(self) -> tuple[Array, Array, Array]:
        """Total, aleatoric and epistemic, summed over the labels, (B,) each, nats."""
        return entropy_parts(self.probabilities, label_entropy)


def class_outputs(
    mean: Array,
    variance: Array,
    probabilities: Array,
    temperature: float,
    features: Mapping[str, Array],
    link: Link,
) -> ClassOutputs:
    """Of classes, or of labels, as the link says."""
    kind = LabelOutputs if link == "probit-sigmoid" else ClassOutputs
    return kind(mean, variance, probabilities, temperature, features)


@dataclass(frozen=True)
class RegressionOutputs:
    """What a regression's scores are made of: variance (B, K), the standard deviations of the noise (K,), and the
    feature scores that the graph computes, (B,) each, by name; none by default."""

    variance: Array
    sigma_noise: Array
    features: Mapping[str, Array] = field(default_factory=dict)

    @functools.cached_property
    def comparable(self) -> tuple[float, Array]:
        """sigma, the geometric mean of the noises, and v_k / r_k^2, r_k = sigma_k / sigma: the variances (B, K) in one
        unit."""
        sigma, ratios = noise_ratios(self.sigma_noise)
        return sigma, np.asarray(self.variance, np.float64) / np.square(ratios)

    def feature(self, name: str) -> Array:
        """The feature score called `name`, (B,)."""
        return np.asarray(self.features[name], np.float64)


Outputs = ClassOutputs | RegressionOutputs
