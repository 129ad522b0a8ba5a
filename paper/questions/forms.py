"""Forms of the predictive: from outputs and their joint covariance to probabilities.

mean (n, K); covariance (n, K, K) = J_S Sigma_S J_S^T; temperature T.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from probity.offline.jacobian.output_rule import ALL_OUTPUTS, Margin, OutputRule, filled
from probity.service.maths.predictive import link_approx

Array = npt.NDArray[Any]
Form = Callable[[Array, Array, float], Array]


def diagonal(rule: OutputRule) -> Form:
    """softmax(f / sqrt(T^2 + pi/8 v)), v from the variances that `rule` computes."""

    def probabilities(mean: Array, covariance: Array, temperature: float) -> Array:
        return link_approx(mean, variances(rule, mean, covariance), temperature)

    return probabilities


def variances(rule: OutputRule, mean: Array, covariance: Array) -> Array:
    """(n, K): c Sigma(x) c^T for the mixtures c of outputs that the rule computes, and what follows for all K."""
    outputs = torch.as_tensor(mean)
    mixtures = rule.mixing(outputs).cotangents(outputs).numpy()
    computed = np.einsum("nmk,nkl,nml->nm", mixtures, covariance, mixtures, optimize=True)
    return filled(rule, np.maximum(computed, 0.0), outputs)


def mean_of_leading(count: int) -> Form:
    """softmax(f / sqrt(T^2 + pi/8 v)), v the mean variance of the `count` largest outputs, for all outputs."""

    def probabilities(mean: Array, covariance: Array, temperature: float) -> Array:
        own = np.diagonal(covariance, axis1=1, axis2=2)
        largest = np.argsort(-mean, axis=1, kind="stable")[:, :count]
        return link_approx(mean, np.take_along_axis(own, largest, axis=1).mean(axis=1, keepdims=True), temperature)

    return probabilities


def pairwise(mean: Array, covariance: Array, temperature: float) -> Array:
    """p_k proportional to 1 / sum_j exp(-(f_k - f_j) / sqrt(T^2 + pi/8 Var(f_k - f_j))).

    Unlike the diagonal form it does not change where the same random number is added to all outputs. From the pairwise
    probit bounds of a softmax; compared with others by Lu, Ie and Sha, arXiv 2006.07584.
    """
    own = np.diagonal(covariance, axis1=1, axis2=2)
    spread = own[:, :, None] + own[:, None, :] - 2 * covariance
    gap = mean[:, :, None] - mean[:, None, :]
    scaled = gap / np.sqrt(temperature**2 + np.pi / 8 * np.maximum(spread, 0.0))
    largest = (-scaled).max(axis=2)  # so that no exponential overflows
    log_sum = largest + np.log(np.exp(-scaled - largest[:, :, None]).sum(axis=2))
    unnormalised = np.exp(-(log_sum - log_sum.min(axis=1, keepdims=True)))
    result: Array = unnormalised / unnormalised.sum(axis=1, keepdims=True)
    return result


def centred(mean: Array, covariance: Array, temperature: float) -> Array:
    """softmax(g / sqrt(T^2 + pi/8 v)), g_k = f_k - mean_j f_j, v_k = 2 K / (K - 1) Var(g_k).

    As the pairwise form does not change where the same random number is added to all outputs, and is the same where
    all differences of two outputs have one variance (always so for K = 2), at the price of the diagonal form.
    """
    outputs = mean.shape[1]
    centring = np.eye(outputs) - 1 / outputs
    variance = np.einsum("mk,nkl,ml->nm", centring, covariance, centring, optimize=True)
    factor = 2 * outputs / (outputs - 1)
    return link_approx(mean @ centring, factor * np.maximum(variance, 0.0), temperature)


def against_leading(mean: Array, covariance: Array, temperature: float) -> Array:
    """softmax(g / sqrt(T^2 + pi/8 v)), g_k = f_k - f_1 for the leading output f_1, v_k = Var(g_k)."""
    first = mean.argmax(axis=1)
    rows = np.arange(len(mean))
    own = np.diagonal(covariance, axis1=1, axis2=2)
    spread = own + own[rows, first][:, None] - 2 * covariance[rows, first]
    return link_approx(mean - mean.max(axis=1, keepdims=True), np.maximum(spread, 0.0), temperature)


DIAGONAL = diagonal(ALL_OUTPUTS)
LEADING, LEADING_THREE, MARGIN = mean_of_leading(1), mean_of_leading(3), diagonal(Margin())
