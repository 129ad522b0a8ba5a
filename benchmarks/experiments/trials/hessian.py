"""The curvature of the added weights: identity for the outputs' Hessian, as a fit takes it, or the Hessian itself.

    identity:     C = E[phi phi^T]
    mean output:  C = E[h phi phi^T] / E[h],   h = mean_k p_k (1 - p_k)
    each output:  C_k = E[p_k (1 - p_k) phi phi^T] / E[h],   and the mean of the K variances

With the Hessian, an example of which the network is sure determines little, so that variance stays where it was trained
and sure of its answer. Divided by E[h], the precision rho has one meaning for all.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from benchmarks.experiments.trials.link import divided, log_likelihood, within_budget
from benchmarks.experiments.trials.reading import Images, Reading, groups
from benchmarks.experiments.trials.spectrum import BUDGET
from offline.features.added_weights import LINK_FEATURES, FeatureVariance

Array = npt.NDArray[Any]
Variance = Callable[[Tensor], Array]
"""v (n,) of features phi (n, R)."""
IDENTITY, MEAN, EACH = "identity", "Hessian, mean output", "Hessian, each output"
SCALES: Array = np.logspace(-2, 5, 57)


def rows(reading: Reading) -> dict[str, dict[str, float]]:
    """Curvature -> mean log-likelihood on each group of test sets, at what the budget pays for."""
    generator = torch.Generator().manual_seed(0)
    fitted = FeatureVariance.fit(reading.train.parts, LINK_FEATURES, with_lengths=False, generator=generator)

    def features(images: Images) -> Tensor:
        t = fitted.coordinates.of(images.parts)
        return math.sqrt(2 / len(fitted.phases)) * torch.cos(t @ fitted.frequencies + fitted.phases)

    tuning, held = reading.tuning, features(reading.tuning)
    tests = {name: (images, features(images)) for name, images in reading.tests.items()}
    found = {}
    for label, variance in variances(features(reading.train), torch.as_tensor(reading.train.logits)).items():
        at = partial(np.multiply, variance(held))
        scale, temperature = within_budget(tuning.logits, tuning.classes, SCALES, at, BUDGET)
        found[label] = groups(
            {
                name: log_likelihood(divided(images.logits, scale * variance(phi), temperature), images.classes)
                for name, (images, phi) in tests.items()
            }
        )
    return found


def variances(phi: Tensor, logits: Tensor) -> dict[str, Variance]:
    """phi (N, R) and logits (N, K) of training images."""
    p = torch.softmax(logits, dim=1)
    hessian = p * (1 - p)
    each = [posterior_variance(phi, hessian[:, k] / hessian.mean()) for k in range(p.shape[1])]
    return {
        IDENTITY: posterior_variance(phi, torch.ones(len(phi), dtype=phi.dtype)),
        MEAN: posterior_variance(phi, hessian.mean(1) / hessian.mean()),
        EACH: lambda features: np.mean([variance(features) for variance in each], axis=0),
    }


def posterior_variance(phi: Tensor, weights: Tensor) -> Variance:
    """rho phi^T (C + rho I)^-1 phi with C = E[w phi phi^T], by its leading eigenpairs as a fit keeps them."""
    rho, kept = LINK_FEATURES.precision, LINK_FEATURES.kept
    values, vectors = torch.linalg.eigh((phi * weights[:, None]).T @ phi / len(phi))
    leading, shrunk = vectors[:, -kept:], values[-kept:].clamp(min=0)
    shrunk = shrunk / (shrunk + rho)
    return lambda f: np.asarray((f.square().sum(1) - ((f @ leading).square() * shrunk).sum(1)).clamp(min=0).numpy())
