"""One prior precision for all eigenvectors of a curvature, or one for each of two groups of them, at the same budget.

With eigenpairs (e_i, u_i) of a curvature and g_i = mean_k (J_k u_i)^2, the variance that all outputs of an example
share is

    subnetwork:     v = sum_i g_i / (e_i + 1 / c_i),
    added weights:  v = sum_i c_i rho / (e_i + rho) g_i,   J the random features, the same for each output,

c_i of the leading group `ratio` times that of the rest. The leading group holds a share of the trace. For each share
and ratio the whole is scaled to what the budget pays for; then synthetic shifts of held-out images choose. "best on the
tests" chooses by the test sets themselves: no way to learn two precisions can do better. A control for the added
weights chooses rho in the same way, with one c: it is one number too many as well, and changes nothing in the graph.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from benchmarks.experiments.trials.link import best_temperature, divided, log_likelihood, within_budget
from benchmarks.experiments.trials.reading import USUAL, Images, Reading, groups
from offline.features.added_weights import LINK_FEATURES, FeatureVariance

Array = npt.NDArray[Any]
BUDGET = 0.005
RATIOS = tuple(10.0**power for power in (-3, -2, -1, -0.5, 0.5, 1, 2, 3))
SHARES = (0.9, 0.99, 0.999)  # of the trace, in the leading group
FACTORS = (1e-3, 1e-2, 0.1, 10.0, 100.0)  # of rho
SIZE = 750  # weights of the head
EXAMPLES = 10_000  # training images for the curvature
BLOCK = 500
ONE, RHO, TWO = "one precision", "one precision, rho chosen", "two precisions"
BEST = "two precisions, best on the tests"
Kind = tuple[str, float, float]  # ONE, RHO or TWO, the share or 0, and the ratio or factor


@dataclass(frozen=True)
class Curvature:
    """e (S,) descending, g of images (n, S), and the variance (n,) of g at c (S,) or at one c for all.

    scales: values of c, ascending; control: c_i over c with another rho, by its factor, where there is one.
    """

    values: Array
    squares: Callable[[Images], Array]
    variance: Callable[[Array, Array], Array]
    scales: Array
    control: dict[float, Array]


def rows(reading: Reading, seed: int) -> dict[str, dict[str, dict[str, float]]]:
    """Kind of weights -> way -> mean log-likelihood on each group of test sets."""
    return {
        "subnetwork": compare(reading, subnetwork(reading, seed)),
        "added weights": compare(reading, added(reading)),
    }


def subnetwork(reading: Reading, seed: int) -> Curvature:
    """Of random live weights of the head: J_k is an activation for the weights of row k, else zero."""
    train = reading.train.first(EXAMPLES)
    live = np.flatnonzero(train.last.numpy().any(axis=0))
    classes = train.logits.shape[1]
    size = min(SIZE, classes * len(live))
    chosen = np.random.default_rng(seed).choice(classes * len(live), size, replace=False)
    outputs, inputs = chosen // len(live), live[chosen % len(live)]
    curvature = np.zeros((size, size))
    for start in range(0, len(train.logits), BLOCK):
        some = slice(start, start + BLOCK)
        p = np.exp(train.logits[some] - train.logits[some].max(axis=1, keepdims=True))
        p /= p.sum(axis=1, keepdims=True)
        root = np.sqrt(p)[:, :, np.newaxis] * np.eye(classes) - p[:, :, np.newaxis] * np.sqrt(p)[:, np.newaxis]
        h = train.last[some].double().numpy()[:, inputs]
        factor = (root[:, outputs] * h[:, :, np.newaxis]).transpose(0, 2, 1).reshape(-1, size)
        curvature += factor.T @ factor
    values, vectors = _eigen(curvature)

    def squares(images: Images) -> Array:
        h, found = images.last.double().numpy()[:, inputs], np.zeros((len(images.logits), size))
        for k in range(classes):
            own = outputs == k
            found += np.square(h[:, own] @ vectors[own])
        mean: Array = found / classes
        return mean

    unit = float(values.mean())
    return Curvature(
        values, squares, lambda g, scale: g @ (1 / (values + 1 / scale)), np.logspace(-3, 5, 49) / unit, {}
    )


def added(reading: Reading) -> Curvature:
    """Of the added weights that a fit makes for the confidence, all eigenvectors kept."""
    generator = torch.Generator().manual_seed(0)
    fitted = FeatureVariance.fit(reading.train.parts, LINK_FEATURES, with_lengths=False, generator=generator)

    def features(images: Images) -> Array:
        t = fitted.coordinates.of(images.parts)
        phi = math.sqrt(2 / len(fitted.phases)) * torch.cos(t @ fitted.frequencies + fitted.phases)
        return np.asarray(phi.numpy())

    phi = features(reading.train)
    values, vectors = _eigen(phi.T @ phi / len(phi))
    rho = LINK_FEATURES.precision
    shrunk = rho / (values + rho)
    control = {factor: factor * rho / (values + factor * rho) / shrunk for factor in FACTORS}
    return Curvature(
        values,
        lambda images: np.square(features(images) @ vectors),
        lambda g, scale: g @ (shrunk * scale),
        np.logspace(-2, 5, 57),
        control,
    )


def compare(reading: Reading, curvature: Curvature) -> dict[str, dict[str, float]]:
    """The mean log-likelihoods with one precision, with what synthetic shifts chose, and with the best two."""
    tuning, size = reading.tuning, len(curvature.values)
    held = curvature.squares(tuning)
    judging = {name: (images, curvature.squares(images)) for name, images in reading.judging.items()}
    tests = {name: (images, curvature.squares(images)) for name, images in reading.tests.items()}

    def worth(sets: dict[str, tuple[Images, Array]], scale: Array, temperature: float) -> dict[str, float]:
        return {
            name: log_likelihood(divided(images.logits, curvature.variance(g, scale), temperature), images.classes)
            for name, (images, g) in sets.items()
        }

    tried: dict[Kind, tuple[float, dict[str, float]]] = {}
    for kind, relative in _ways(curvature).items():

        def variance_at(scale: float, relative: Array = relative) -> Array:
            return curvature.variance(held, scale * relative)

        scale, temperature = within_budget(tuning.logits, tuning.classes, curvature.scales, variance_at, BUDGET)
        judged = float(np.mean(list(worth(judging, scale * relative, temperature).values())))
        tried[kind] = judged, groups(worth(tests, scale * relative, temperature))
    temperature, _ = best_temperature(tuning.logits, np.zeros(len(tuning.logits)), tuning.classes)
    nothing = {name: (images, np.zeros_like(g)) for name, (images, g) in tests.items()}
    one = tried[ONE, 0.0, 1.0][1]
    found = {"no variance": groups(worth(nothing, np.ones(size), temperature)), ONE: one}
    for label in (RHO, TWO) if curvature.control else (TWO,):
        chosen = max((kind for kind in tried if kind[0] in (ONE, label)), key=lambda kind: tried[kind][0])
        found[label] = {**tried[chosen][1], "share": chosen[1], "ratio": chosen[2]}
    best = max((kind for kind in tried if kind[0] != RHO), key=lambda kind: _shifted(tried[kind][1]))
    found[BEST] = {**tried[best][1], "share": best[1], "ratio": best[2]}
    return found


def _ways(curvature: Curvature) -> dict[Kind, Array]:
    """c_i over c."""
    found = {(ONE, 0.0, 1.0): np.ones(len(curvature.values))}
    found |= {(RHO, 0.0, factor): relative for factor, relative in curvature.control.items()}
    for share in SHARES:
        leading = np.cumsum(curvature.values) <= share * curvature.values.sum()
        leading[0] = True
        for ratio in RATIOS:
            found[TWO, share, ratio] = np.where(leading, math.sqrt(ratio), 1 / math.sqrt(ratio))
    return found


def _shifted(found: dict[str, float]) -> float:
    return float(np.mean([value for kind, value in found.items() if kind != USUAL]))


def _eigen(matrix: Array) -> tuple[Array, Array]:
    """Eigenvalues, descending and not negative, and eigenvectors."""
    values, vectors = np.linalg.eigh(matrix)
    return np.maximum(values[::-1], 0.0), np.ascontiguousarray(vectors[:, ::-1])
