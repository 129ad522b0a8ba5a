"""Jacobians, posteriors, variances and what a selection is judged by."""

import copy
import math
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

Array = npt.NDArray[np.float64]


def exact_model(model: nn.Module) -> nn.Module:
    """A float64 copy in eval mode."""
    return copy.deepcopy(model).double().eval()


def trainable(model: nn.Module) -> list[Tensor]:
    return [p for p in model.parameters() if p.requires_grad]


def full_jacobian(model: nn.Module, inputs: Tensor) -> tuple[Array, Array]:
    """(mean (B, K), jacobian (B, K, D)): d f_k(x_b) / d w_d, by one backward pass for each b and k."""
    exact = exact_model(model)
    inputs = inputs.double() if inputs.is_floating_point() else inputs
    means, rows = [], []
    for example in inputs:
        output = exact(example.unsqueeze(0))[0]
        means.append(output.detach().numpy())
        for k in range(len(output)):
            gradients = torch.autograd.grad(output[k], trainable(exact), retain_graph=True, allow_unused=True)
            parts = [
                torch.zeros_like(p).reshape(-1) if g is None else g.reshape(-1)
                for p, g in zip(trainable(exact), gradients, strict=True)
            ]
            rows.append(torch.cat(parts).numpy())
    mean = np.stack(means)
    return mean, np.stack(rows).reshape(len(inputs), mean.shape[1], -1)


def softmax(logits: Array) -> Array:
    exponentials = [math.exp(value - max(logits)) for value in logits]
    return np.array([value / sum(exponentials) for value in exponentials])


def sigmoid(logit: float) -> float:
    return 1 / (1 + math.exp(-logit)) if logit >= 0 else math.exp(logit) / (1 + math.exp(logit))


def probit_divisor(variance: Any, temperature: float = 1.0) -> Any:
    """sqrt(T^2 + pi/8 v), by which the probit approximation divides a logit."""
    return (temperature**2 + math.pi / 8 * variance) ** 0.5


def label_probabilities(mean: Array, var: Array, temperature: float = 1.0) -> Array:
    """Of having each label: MacKay's probit approximation, one logit at a time."""
    return np.array(
        [
            [sigmoid(f / probit_divisor(v, temperature)) for f, v in zip(*row, strict=True)]
            for row in zip(mean, var, strict=True)
        ]
    )


def label_log_likelihood(mean: Array, variance: Array, target: Array, temperature: float = 1.0) -> float:
    """Of one example: each label by itself."""
    p = label_probabilities(mean[None], variance[None], temperature)[0]
    return sum(math.log(p[k] if y else 1 - p[k]) for k, y in enumerate(target))


def output_hessian(logits: Array, likelihood: str, sigma_noise: float | Array | None) -> Array:
    """Lambda (K, K): diag(p) - p p^T, diag(p_k (1 - p_k)) of labels, or diag(1 / sigma_k^2)."""
    if likelihood == "multilabel":
        return np.diag([sigmoid(f) * sigmoid(-f) for f in logits])
    if likelihood == "classification":
        p = softmax(logits)
        return np.diag(p) - np.outer(p, p)
    assert sigma_noise is not None
    return np.diag(1 / np.broadcast_to(np.asarray(sigma_noise, np.float64), len(logits)) ** 2)


def posterior_precision(
    mean: Array, jacobian: Array, likelihood: str, prior: float, sigma_noise: float | Array | None = None
) -> Array:
    """H_S = sum_n J_n^T Lambda_n J_n + prior I, (S, S)."""
    size = jacobian.shape[2]
    h = prior * np.eye(size)
    for n in range(len(mean)):
        h += jacobian[n].T @ output_hessian(mean[n], likelihood, sigma_noise) @ jacobian[n]
    return h


def variance(jacobian: Array, precision: Array) -> Array:
    """diag(J H^-1 J^T), (B, K)."""
    return np.array([[row @ np.linalg.solve(precision, row) for row in example] for example in jacobian])


def binary_probabilities(mean: Array, jacobian: Array, prior: float, at: tuple[Array, Array]) -> Array:
    """p(y = 1) (n,) of a network with one logit f, trained with the binary cross-entropy, at inputs with `at`.

    H = sum_n p_n (1 - p_n) j_n j_n^T + prior I, v = j^T H^-1 j, p(y = 1) = sigmoid(f / sqrt(1 + pi/8 v)) (MacKay,
    1992).
    mean (N,), jacobian (N, S) over the training data; `at`: the same of the inputs that are asked for.
    """
    h = prior * np.eye(jacobian.shape[1])
    for f, j in zip(mean, jacobian, strict=True):
        p = 1 / (1 + math.exp(-f))
        h += p * (1 - p) * np.outer(j, j)
    variances = [j @ np.linalg.solve(h, j) for j in at[1]]
    return np.array([1 / (1 + math.exp(-f / probit_divisor(v))) for f, v in zip(at[0], variances, strict=True)])


def curvature_left_out(logits: Array, rows: int) -> Array:
    """sum over the classes that are not the `rows` - 1 most probable ones of p_k (e_k - q) (e_k - q)^T, (K, K)."""
    p, identity = softmax(logits), np.eye(len(logits))
    others = sorted(range(len(p)), key=lambda k: -p[k])[rows - 1 :]
    q = sum(p[k] * identity[k] for k in others) / sum(p[k] for k in others)
    left_out: Array = sum(p[k] * np.outer(identity[k] - q, identity[k] - q) for k in others)
    return left_out


def probit_probabilities(mean: Array, var: Array) -> Array:
    """softmax(f / sqrt(1 + pi / 8 var))."""
    return np.stack([softmax(f / probit_divisor(v)) for f, v in zip(mean, var, strict=True)])


def marginal_variance(precision: Array) -> Array:
    """diag(precision^-1), (D,)."""
    return np.diag(np.linalg.inv(precision))


def greedy(precision: Array, rows: Array, size: int, noise: float, full: Array) -> list[int]:
    """Places in the order chosen: each step tries every weight and takes the smallest divergence from `full` (n,).

    KL(N(f, a) || N(f, b)) = (a / b - 1 - log(a / b)) / 2 with a = full + noise, b the subnetwork's variance + noise.
    """
    chosen: list[int] = []
    while len(chosen) < size:
        divergences = {}
        for weight in set(range(len(precision))) - set(chosen):
            inside = [*chosen, weight]
            covariance = np.linalg.inv(precision[np.ix_(inside, inside)])
            variance = np.einsum("ns,st,nt->n", rows[:, inside], covariance, rows[:, inside])
            ratio = (full + noise) / (variance + noise)
            divergences[weight] = np.sum(ratio - 1 - np.log(ratio)) / 2
        chosen.append(min(divergences, key=lambda weight: divergences[weight]))
    return chosen


def leverage(jacobian: Array, precision: Array) -> Array:
    """mean_n sum_k (C J_nk)_d^2 / C_dd with C = precision^-1, (D,)."""
    covariance = np.linalg.inv(precision)
    total = np.zeros(len(precision))
    for example in jacobian:
        for row in example:
            total += (covariance @ row) ** 2
    return total / len(jacobian) / np.diag(covariance)


def log_likelihood(mean: Array, variance: Array, target: Array, sigma: float | None, temperature: float = 1.0) -> float:
    """Predictive log-likelihood of one example, outputs one at a time; `sigma` None means classification."""
    if sigma is None:
        scaled = [m / probit_divisor(v, temperature) for m, v in zip(mean, variance, strict=True)]
        return scaled[int(target)] - math.log(sum(math.exp(s) for s in scaled))
    return sum(
        -0.5 * math.log(2 * math.pi * (v + sigma**2)) - (y - m) ** 2 / (2 * (v + sigma**2))
        for m, v, y in zip(mean, variance, target, strict=True)
    )
