"""The two likelihoods: targets checked, log-likelihoods, and the square root of the output Hessian."""

import math
from typing import Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from offline.runtime.arrays import Array

Likelihood = Literal["classification", "regression"]


def check_targets(targets: Tensor, outputs: int, batch: int, likelihood: Likelihood) -> Tensor:
    """Class numbers (B,) int64 in [0, K), or values (B, K) float; `ValueError` tells what was found."""
    if likelihood == "classification":
        return _check_classes(targets, outputs, batch)
    if targets.dim() == 1 and outputs == 1:
        targets = targets.unsqueeze(1)
    if tuple(targets.shape) != (batch, outputs):
        raise ValueError(f"targets: found shape {tuple(targets.shape)}, expected ({batch}, {outputs})")
    if targets.is_complex():
        raise ValueError(f"targets: found dtype {targets.dtype}, expected real numbers")
    targets = targets.to(torch.get_default_dtype())
    if not bool(torch.isfinite(targets).all()):
        raise ValueError("targets: found NaN or infinity, expected finite numbers")
    return targets


def _check_classes(targets: Tensor, outputs: int, batch: int) -> Tensor:
    if outputs < 2:
        raise ValueError("model output: found 1 output, expected at least 2 for classification (one logit a class)")
    if targets.is_floating_point() or targets.is_complex() or targets.dtype == torch.bool:
        raise ValueError(f"targets: found dtype {targets.dtype}, expected integer class numbers")
    if tuple(targets.shape) != (batch,):
        raise ValueError(f"targets: found shape {tuple(targets.shape)}, expected ({batch},) class numbers")
    targets = targets.long()
    if int(targets.min()) < 0 or int(targets.max()) >= outputs:
        raise ValueError(
            f"targets: found class numbers from {int(targets.min())} to {int(targets.max())}, expected 0 to "
            f"{outputs - 1} for a model with {outputs} outputs"
        )
    return targets


def sqrt_hessian_product(jacobian: Tensor, mean: Tensor, likelihood: Likelihood) -> Tensor:
    """C^T J with C C^T = Lambda, the Hessian of the negative log-likelihood in the outputs.

    Classification: Lambda = diag(p) - p p^T, C = diag(sqrt p) - p sqrt(p)^T, so row k of C^T J is
    sqrt(p_k) (J_k - sum_j p_j J_j). Regression: J itself (Lambda = I; divide by sigma^2 afterwards).
    jacobian (B, K, S), mean (B, K) -> (B, K, S), in the Jacobian's precision.
    """
    if likelihood == "regression":
        return jacobian
    p = torch.softmax(mean.to(jacobian.dtype), dim=1).unsqueeze(2)
    return p.sqrt() * (jacobian - (p * jacobian).sum(1, keepdim=True))


def sqrt_hessian_transpose_product(vectors: Tensor, mean: Tensor, likelihood: Likelihood) -> Tensor:
    """C z for `vectors` z (B, K): sqrt(p) z - p (sqrt(p)^T z) for classification, z for regression; mean (B, K)."""
    if likelihood == "regression":
        return vectors
    p = torch.softmax(mean.to(vectors.dtype), dim=1)
    return p.sqrt() * vectors - p * (p.sqrt() * vectors).sum(1, keepdim=True)


def training_loss(output: Tensor, targets: Tensor, likelihood: Likelihood, noise_variance: float = 1.0) -> Tensor:
    """Mean negative log-likelihood of a batch, without constants; regression: (y - f)^2 / (2 sigma^2)."""
    if likelihood == "classification":
        return F.cross_entropy(output, targets)
    return F.mse_loss(output, targets) / (2 * noise_variance)


def class_log_likelihood(probabilities: Array, targets: Array) -> Array:
    """log p(y_n), (n,); probabilities are kept above the smallest normal float."""
    chosen = probabilities[np.arange(len(targets)), targets]
    values: Array = np.log(np.maximum(chosen, np.finfo(np.float64).tiny))
    return values


def gaussian_log_likelihood(mean: Array, std: Array, targets: Array) -> Array:
    """log N(y_n; mean_n, diag std_n^2), summed over outputs, (n,)."""
    z = (np.asarray(targets, np.float64) - mean) / std
    values: Array = (-0.5 * np.square(z) - np.log(std) - 0.5 * math.log(2 * math.pi)).sum(axis=-1)
    return values
