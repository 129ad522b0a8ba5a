"""Out-of-distribution scores."""

import itertools
import math
from typing import Any

import numpy as np
import numpy.typing as npt

from tests.reference.posterior import softmax

Array = npt.NDArray[np.float64]


def entropy(p: Any) -> float:
    return -sum(float(value) * math.log(value) for value in p if value > 0)


def class_scores(mean: Array, var: Array, temperature: float) -> dict[str, float]:
    """Every score of a classification; mean, var (K,)."""
    p = softmax(np.array([f / math.sqrt(temperature**2 + math.pi / 8 * v) for f, v in zip(mean, var, strict=True)]))
    q = softmax(np.array([f / temperature for f in mean]))
    c = max(range(len(p)), key=lambda k: p[k])
    top = sorted(p, reverse=True)[:100]
    return {
        "predictive_entropy": entropy(p),
        "top_probability": 1 - max(p),
        "epistemic_entropy": max(entropy(p) - entropy(q), 0.0),
        "logit_variance": sum(var) / len(var),
        "class_variance": var[c],
        "relative_variance": var[c] / (mean[c] - sum(mean) / len(mean)) ** 2,
        "energy": -temperature * math.log(sum(math.exp(f / temperature) for f in mean)),
        "generalised_entropy": sum(value**0.1 * (1 - value) ** 0.1 for value in top),
        "max_logit": -max(mean),
    }


def neighbour_distance(u: Array, bank: Array, place: int) -> float:
    """The squared distance to the example that is nearest but for place - 1 others."""
    distances = sorted(float(((u - other) ** 2).sum()) for other in bank)
    return distances[min(place, len(bank)) - 1]


def residual(u: Array, features: Array, held: float) -> float:
    """The squared length of u outside the fewest principal directions that hold so much of the features' squares."""
    _, values, directions = np.linalg.svd(features)
    shares = np.cumsum(values**2) / (values**2).sum()
    kept = directions[: min(int(np.argmax(shares >= held)) + 1, len(u) - 1)]
    return float(u @ u - ((kept @ u) ** 2).sum())


def surprise(score: float, values: list[float], levels: list[float], mean_excess: float) -> float:
    """-log(1 - F), linear between the quantiles `values` at `levels`, with an exponential tail above the last one."""
    heights = [-math.log(1 - level) for level in levels]
    if score >= values[-1]:
        return heights[-1] + (score - values[-1]) / mean_excess
    for (a, b), (low, high) in zip(itertools.pairwise(values), itertools.pairwise(heights), strict=True):
        if a <= score < b:
            return low + (high - low) * (score - a) / (b - a)
    return heights[0]


def unit_features(parts: list[Array]) -> Array:
    """Features (F_j,) of each layer divided by their length, one after the other, divided by the length of it all."""
    joined = np.concatenate([part / math.sqrt(sum(part * part)) for part in parts])
    return joined / math.sqrt(sum(joined * joined))


def class_distance(u: Array, data: Array, labels: Any, rank: int, shrinkage: float) -> float:
    """min_k (u - m_k)^T C^-1 (u - m_k) for one u (F,); data (n, F), labels (n,).

    In the `rank` leading directions of mean u u^T: the covariance within the classes, and the means m_k; in all others:
    one variance, and no means. Both are shrunk towards the mean variance of a direction. Everything is dense.
    """
    size = len(u)
    seconds = sum(np.outer(x, x) for x in data) / len(data)
    values, vectors = np.linalg.eigh(seconds)
    leading = vectors[:, np.argsort(values)[::-1][:rank]]
    inside = leading @ leading.T
    outside = np.eye(size) - inside
    classes = sorted(set(labels))
    means = {k: inside @ np.mean([x for x, y in zip(data, labels, strict=True) if y == k], axis=0) for k in classes}
    centred = [inside @ x - means[y] for x, y in zip(data, labels, strict=True)]
    within = sum(np.outer(x, x) for x in centred) / len(data)
    left = sum(x @ outside @ x for x in data) / len(data)
    shared = (np.trace(within) + left) / size
    covariance = (1 - shrinkage) * within + shrinkage * shared * inside
    if rank < size:
        covariance = covariance + ((1 - shrinkage) * left / (size - rank) + shrinkage * shared) * outside
    return min(float((u - m) @ np.linalg.solve(covariance, u - m)) for m in means.values())
