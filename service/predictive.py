"""The mathematics of prediction, once: pure NumPy, shared by the service and by the offline job.

Symbols: B examples, K outputs, S chosen weights; `mean` (B, K) network outputs, `jacobian` (B, K, S) their
derivatives, `variance` (B, K) the diagonal of J Sigma J^T. Source: Daxberger et al., "Bayesian Deep Learning
via Subnetwork Inference" (ICML 2021), sections 2 and 3.
"""

import statistics
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


def functional_variance(jacobian: Array, scale_tril: Array) -> Array:
    """Diagonal of `J Sigma J^T`, Sigma = L L^T: the row-wise sum of squares of `J L`.

    jacobian (B, K, S), scale_tril L (S, S) -> (B, K), in the outputs' units squared. One matrix product and
    no solve.
    """
    batch, outputs, size = jacobian.shape
    projected = jacobian.reshape(batch * outputs, size) @ scale_tril
    variance: Array = np.square(projected).sum(axis=-1).reshape(batch, outputs)
    return variance


def softmax(logits: Array) -> Array:
    """exp(f_k) / sum_j exp(f_j) over the last axis, float64, shifted so that nothing overflows."""
    shifted = np.asarray(logits, np.float64)
    exponentials = np.exp(shifted - shifted.max(axis=-1, keepdims=True))
    normalised: Array = exponentials / exponentials.sum(axis=-1, keepdims=True)
    return normalised


def link_approx(mean: Array, variance: Array, temperature: float = 1.0) -> Array:
    """Probit-adjusted class probabilities: softmax(f / sqrt(T^2 + pi/8 diag(J Sigma J^T))).

    The multi-class probit approximation of E[softmax(f)], f ~ N(mean, variance) (section 3, equation of the
    classification predictive), of logits divided by the temperature T (Guo et al., 2017). Each logit is
    scaled by its own variance, so the result is not invariant to a shift of the logits and its argmax may
    differ from the network's. (B, K), (B, K) -> (B, K) float64, rows sum to 1.
    """
    spread = np.sqrt(temperature**2 + np.pi / 8 * np.asarray(variance, np.float64))
    return softmax(np.asarray(mean, np.float64) / spread)


def entropy(probabilities: Array) -> Array:
    """-sum_k p_k log p_k over the last axis, in nats; 0 log 0 = 0."""
    p = np.asarray(probabilities, np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = np.where(p > 0, p * np.log(p), 0.0)
    nats: Array = np.maximum(-terms.sum(axis=-1), 0.0)
    return nats


def entropy_parts(probabilities: Array, map_probabilities: Array) -> tuple[Array, Array, Array]:
    """Split the predictive entropy: (total, aleatoric, epistemic), (B,) each, nats, total = aleatoric + epistemic.

    total = H(probabilities). aleatoric = H(softmax(mean / T)), what stays uncertain when the weights are taken as
    known (the plug-in value of E[H(softmax(f))]), capped at total; epistemic is the rest: what not knowing
    the weights adds.
    """
    total = entropy(probabilities)
    aleatoric = np.minimum(entropy(map_probabilities), total)
    return total, aleatoric, total - aleatoric


def predictive_std(variance: Array, sigma_noise: float) -> Array:
    """sqrt(variance + sigma_noise^2): the observation noise is added once."""
    return np.sqrt(np.asarray(variance, np.float64) + sigma_noise**2)


def gaussian_interval(mean: Array, std: Array, level: float) -> tuple[Array, Array]:
    """Central interval of N(mean, std^2) that holds a share `level`: mean -+ z((1 + level) / 2) std."""
    half = statistics.NormalDist().inv_cdf((1 + level) / 2) * np.asarray(std, np.float64)
    centre = np.asarray(mean, np.float64)
    return centre - half, centre + half
