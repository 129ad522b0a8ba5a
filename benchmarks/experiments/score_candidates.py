"""Scores from the literature that Probity does not have, from the activations that the head reads: are they worth it?

Symbols: h (n, F) those activations, W (K, F) and b (K,) the head, f = W h + b the logits, c the largest of them, m the
mean of h over training examples and m_k that of class k. Everything is fitted to training examples; where two parts are
added up, each is standardised on them, so that nothing is tuned. Every score is larger the stranger an input is.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from offline.laplace.scoring import LEAST_DISTANCE
from service.maths.fused_score import Component, LargestSurprise
from service.maths.score_distribution import ScoreDistribution
from service.maths.score_outputs import ClassOutputs
from service.maths.scores import Score

Array = npt.NDArray[Any]
Function = Callable[[Array], Array]
LEAST = 1e-12
RIDGE = 1e-3  # of the mean variance, added to a covariance
KEPT = 85  # SCALE: the percentile above which activations count
ALWAYS, BEYOND = "surprise with", "surprise beyond 95 % with"


@dataclass(frozen=True)
class Head:
    """W, b, and training examples: h (N, F) and their classes (N,)."""

    weight: Array
    bias: Array
    features: Array
    classes: Array

    @classmethod
    def of(cls, layer: nn.Linear, features: Array, classes: Array) -> "Head":
        """In float64."""
        with torch.no_grad():
            weight, bias = layer.weight.double().numpy(), layer.bias.double().numpy()
        return cls(weight, bias, features.astype(np.float64), classes)

    def logits(self, h: Array) -> Array:
        """f (n, K)."""
        found: Array = h @ self.weight.T + self.bias
        return found

    @property
    def mean(self) -> Array:
        """m (F,)."""
        found: Array = self.features.mean(axis=0)
        return found

    def class_means(self, values: Array) -> Array:
        """Of values (N, F) of the training examples, (K, F)."""
        return np.stack([values[self.classes == k].mean(axis=0) for k in range(len(self.weight))])


def candidates(head: Head) -> dict[str, Function]:
    """Name -> score (n,) of activations (n, F)."""
    made = {"fDBD": fdbd, "CORE": core, "relative Mahalanobis": relative_mahalanobis, "NCI": nci, "SCALE": scale}
    return {name: make(head) for name, make in made.items()}


def fdbd(head: Head) -> Function:
    """Mean distance of h to the boundaries of its class, over its distance from the mean (Liu and Qin, ICML 2024)."""
    between = np.linalg.norm(head.weight[:, np.newaxis] - head.weight, axis=2)
    mean = head.mean

    def score(h: Array) -> Array:
        f = head.logits(h)
        c = f.argmax(axis=1)
        others = np.ones_like(f, dtype=bool)
        others[np.arange(len(f)), c] = False
        gaps = f.max(axis=1, keepdims=True) - f
        distances = (gaps / np.maximum(between[c], LEAST))[others].reshape(len(f), -1)
        found: Array = -distances.mean(axis=1) / np.maximum(np.linalg.norm(h - mean, axis=1), LEAST)
        return found

    return score


def core(head: Head) -> Function:
    """Energy, and the largest cosine between the part of h - m that the head discards and its mean over a class, the
    two added up (Yang, Kim and Bahk, arXiv 2603.18290)."""
    rows = np.linalg.qr(head.weight.T)[0]

    def residual(h: Array) -> Array:
        centred = h - head.mean
        rest = centred - (centred @ rows) @ rows.T
        found: Array = rest / np.maximum(np.linalg.norm(rest, axis=1, keepdims=True), LEAST)
        return found

    means = head.class_means(residual(head.features))
    means /= np.maximum(np.linalg.norm(means, axis=1, keepdims=True), LEAST)
    return _sum(head, lambda h: -np.logaddexp.reduce(head.logits(h), axis=1), lambda h: -(residual(h) @ means.T).max(1))


def relative_mahalanobis(head: Head) -> Function:
    """The squared distance from the nearest class less that from all of them (Ren et al., arXiv 2106.09022)."""
    means, mean = head.class_means(head.features), head.mean
    own, all_of_them = (_whitener(head.features - about) for about in (means[head.classes], mean))

    def score(h: Array) -> Array:
        near = np.square(h[:, np.newaxis] @ own - means @ own).sum(axis=2).min(axis=1)
        found: Array = near - np.square((h - mean) @ all_of_them).sum(axis=1)
        return found

    return score


def nci(head: Head) -> Function:
    """How far h - m points along the weights of its class, and |h|_1, the two added up (Liu and Qin, CVPR 2025)."""

    def along(h: Array) -> Array:
        centred, c = h - head.mean, head.logits(h).argmax(axis=1)
        length = np.maximum(np.linalg.norm(centred, axis=1), LEAST)
        found: Array = -(centred * head.weight[c]).sum(axis=1) / length
        return found

    return _sum(head, along, lambda h: -np.abs(h).sum(axis=1))


def scale(head: Head) -> Function:
    """The energy of activations times exp(their sum over that of the largest 15 %) (Xu et al., ICLR 2024)."""

    def score(h: Array) -> Array:
        large = np.where(h >= np.percentile(h, KEPT, axis=1, keepdims=True), h, 0.0).sum(axis=1)
        ratio = h.sum(axis=1) / np.where(np.abs(large) > LEAST, large, 1.0)
        found: Array = -np.logaddexp.reduce(head.logits(h * np.exp(ratio)[:, np.newaxis]), axis=1)
        return found

    return score


def _sum(head: Head, *parts: Function) -> Function:
    """Each standardised on the training examples."""
    known = [(part, values.mean(), max(values.std(), LEAST)) for part in parts for values in (part(head.features),)]
    return lambda h: np.asarray(sum((part(h) - mean) / deviation for part, mean, deviation in known))


def _whitener(centred: Array) -> Array:
    """A (F, F) with A A^T the inverse of the covariance, a little of the identity added."""
    covariance = centred.T @ centred / len(centred)
    covariance += RIDGE * np.trace(covariance) / len(covariance) * np.eye(len(covariance))
    found: Array = np.linalg.inv(np.linalg.cholesky(covariance)).T
    return found


def with_candidates(outputs: ClassOutputs, functions: Mapping[str, Function], h: Array) -> ClassOutputs:
    """The outputs with the candidates' values among the feature scores."""
    values = {name: function(h.astype(np.float64)) for name, function in functions.items()}
    return replace(outputs, features={**outputs.features, **values})


def alone_of(name: str) -> Score:
    """A candidate as a score."""

    def function(outputs: ClassOutputs) -> Array:
        return outputs.feature(name)

    return Score(name, name, "", "", "", function)  # type: ignore[arg-type]


def joined(default: LargestSurprise, ordinary: ClassOutputs, names: Iterable[str]) -> dict[str, LargestSurprise]:
    """The default score with one more part, which counts always, or only where it is clear, as the distance does."""
    found = {}
    for name in names:
        score = alone_of(name)
        distribution = ScoreDistribution.of(score.scored(ordinary)[0])
        if distribution is not None:
            for words, least in ((ALWAYS, 0.0), (BEYOND, LEAST_DISTANCE)):
                part = Component(score, 1.0, distribution, least)
                found[f"{words} {name}"] = LargestSurprise((*default.components, part))
    return found
