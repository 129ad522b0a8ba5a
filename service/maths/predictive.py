"""The mathematics of prediction in pure NumPy, shared by the service and the offline job.

Symbols: B examples, K outputs, S chosen weights; `mean` (B, K) network outputs, `jacobian` (B, K, S) their
derivatives, `variance` (B, K) the diagonal of J Sigma J^T. Source: Daxberger et al., "Bayesian Deep Learning
via Subnetwork Inference" (ICML 2021), sections 2 and 3.
"""

import math
import statistics
from collections.abc import Callable, Iterator
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Link = Literal["probit", "probit-shared", "probit-sigmoid", "gaussian"]
"""What makes a predictive distribution of outputs and variances, as the manifest names it; the last one of a
regression, the one before it of several labels an example."""
# The probit approximation: sigmoid(x) is near Phi(sqrt(pi / 8) x) (MacKay, 1992).
PROBIT = math.pi / 8
# Of a probability whose logarithm is taken: zero times it is zero. No number in float64 lies between MOST and 1.
LEAST, MOST = float(np.finfo(np.float64).tiny), 1 - 2.0**-53
# Four blocks of columns save 3/8 of the products with a triangular factor. Narrower blocks are slower to multiply.
COLUMN_BLOCKS, LEAST_COLUMNS = 4, 64


def functional_variance(jacobian: Array, scale_tril: Array) -> Array:
    """Diagonal of `J Sigma J^T`, Sigma = L L^T: the row-wise sum of squares of `J L`.

    jacobian (B, K, S), scale_tril L (S, S) lower triangular -> (B, K), in the outputs' units squared. One matrix
    product and no solve, in blocks of columns, so that most zeros above the diagonal are not multiplied.
    """
    batch, outputs, size = jacobian.shape
    rows = jacobian.reshape(batch * outputs, size)
    variance: Array = np.zeros(len(rows), np.result_type(rows, scale_tril))
    for columns in column_blocks(size):
        projected = rows[:, columns.start :] @ scale_tril[columns.start :, columns]
        variance += np.square(projected, out=projected).sum(axis=-1)
    return variance.reshape(batch, outputs)


def column_blocks(size: int) -> Iterator[slice]:
    """The blocks of columns in which a lower triangular (size, size) is multiplied; rows above `start` are zeros."""
    width = max(LEAST_COLUMNS, math.ceil(size / COLUMN_BLOCKS))
    return (slice(start, min(start + width, size)) for start in range(0, size, width))


def softmax(logits: Array) -> Array:
    """exp(f_k) / sum_j exp(f_j) over the last axis, float64, shifted so that nothing overflows."""
    shifted = np.asarray(logits, np.float64)
    exponentials: Array = np.exp(shifted - shifted.max(axis=-1, keepdims=True))
    exponentials /= exponentials.sum(axis=-1, keepdims=True)
    return exponentials


def sigmoid(logits: Array) -> Array:
    """1 / (1 + exp(-f)), float64, as exp(-log(1 + exp(-f))): nothing overflows, and small values keep their digits."""
    found: Array = np.exp(-np.logaddexp(0.0, -np.asarray(logits, np.float64)))
    return found


def link_approx(mean: Array, variance: Array, temperature: float = 1.0, link: Link = "probit") -> Array:
    """Probit-adjusted class probabilities: softmax(f / sqrt(T^2 + pi/8 diag(J Sigma J^T))).

    The multi-class probit approximation of E[softmax(f)], f ~ N(mean, variance) (section 3, equation of the
    classification predictive), of logits divided by the temperature T (Guo et al., 2017). Each logit is
    scaled by its own variance, so the result is not invariant to a shift of the logits and its argmax may
    differ from the network's. (B, K), (B, K) -> (B, K) float64, rows sum to 1.

    link "probit-shared": softmax(f / sqrt(T^2 + pi/8 mean_k v_k)): one divisor for all logits of an example, so that
    the argmax is the network's. variance (B, K) or (B, 1), its mean.

    link "probit-sigmoid": of K labels that an example has or has not, each by itself, sigmoid(f_k / sqrt(T^2 + pi/8
    v_k)) (MacKay, 1992); rows do not sum to 1.
    """
    scaled = np.asarray(mean, np.float64) / _spread(variance, temperature, link)
    return sigmoid(scaled) if link == "probit-sigmoid" else softmax(scaled)


def each_label_log_likelihood(mean: Array, variance: Array, targets: Array, temperature: float = 1.0) -> Array:
    """log p(y_k) of labels y (B, K), 0 or 1:

        -log(1 + exp(-s_k f_k / sqrt(T^2 + pi/8 v_k))),   s_k = 2 y_k - 1.

    mean (B, K), variance (B, K) or (B, 1) -> (B, K), nats. From the logits: a probability next to 1 rounds to 1.
    """
    scaled = np.asarray(mean, np.float64) / _spread(variance, temperature, "probit-sigmoid")
    found: Array = -np.logaddexp(0.0, np.where(np.asarray(targets) > 0, -scaled, scaled))
    return found


def label_log_likelihood(mean: Array, variance: Array, targets: Array, temperature: float = 1.0) -> Array:
    """log p(y) of labels that are independent of each other, the sum of `each_label_log_likelihood` over them, (B,)."""
    found: Array = each_label_log_likelihood(mean, variance, targets, temperature).sum(axis=1)
    return found


def class_probabilities(
    mean: Array, variance: Array, temperature: float, link: Link = "probit", map_temperature: float | None = None
) -> Array:
    """Probabilities with and without the posterior: `link_approx`, and the plain network's softmax(f / T_0).

    map_temperature T_0: of the network without the posterior; None: T. (B, K), (B, K) -> (2, B, K) float64. One softmax
    over both, because for a few examples a call of NumPy costs more than what it computes.
    """
    logits = np.empty((2, *mean.shape))
    plain = np.asarray(mean, np.float64)
    np.divide(plain, _spread(variance, temperature, link), out=logits[0])
    np.divide(plain, temperature if map_temperature is None else map_temperature, out=logits[1])
    return sigmoid(logits) if link == "probit-sigmoid" else softmax(logits)


def _spread(variance: Array, temperature: float, link: Link = "probit") -> Array:
    """sqrt(T^2 + pi/8 v), by which the probit approximation divides each logit, or all of an example."""
    spread, scale = np.asarray(variance, np.float64), PROBIT
    if link == "probit-shared":
        spread, scale = spread.sum(axis=-1, keepdims=True), PROBIT / spread.shape[-1]
    return np.sqrt(scale * spread + temperature**2)


def entropy(probabilities: Array) -> Array:
    """-sum_k p_k log p_k over the last axis, in nats; 0 log 0 = 0."""
    p = np.asarray(probabilities, np.float64)
    nats: Array = np.fmax(-p * np.log(np.maximum(p, LEAST)), 0.0).sum(axis=-1)  # 0 for what is not finite
    return nats


def label_entropy(probabilities: Array) -> Array:
    """-sum_k (p_k log p_k + (1 - p_k) log(1 - p_k)) over the last axis, in nats: of labels that are independent."""
    p = np.asarray(probabilities, np.float64)
    terms = p * np.log(np.maximum(p, LEAST)) + (1 - p) * np.log1p(-np.minimum(p, MOST))
    nats: Array = np.fmax(-terms, 0.0).sum(axis=-1)
    return nats


def entropy_parts(probabilities: Array, entropy_of: Callable[[Array], Array] = entropy) -> tuple[Array, Array, Array]:
    """Split the predictive entropy: (total, aleatoric, epistemic), (B,) each, nats, total = aleatoric + epistemic.

    probabilities (2, B, K), with and without the posterior, as `class_probabilities` gives them. total is the entropy
    of the first. aleatoric is that of the second, H(softmax(mean / T)), what stays uncertain when the weights are taken
    as known (the plug-in value of E[H(softmax(f))]), capped at total; epistemic is the rest: what not knowing the
    weights adds. entropy_of: `label_entropy` for several labels an example.
    """
    total, plain = entropy_of(probabilities)
    aleatoric = np.minimum(plain, total)
    return total, aleatoric, total - aleatoric


def predictive_std(variance: Array, sigma_noise: float | Array, noise_scale: Array | None = None) -> Array:
    """sqrt(variance + sigma_noise^2): the observation noise, one number or one for each output, is added once;
    noise_scale (B, K): what it is multiplied by where it depends on the input."""
    noise: Array = np.asarray(sigma_noise, np.float64) * (1.0 if noise_scale is None else noise_scale)
    return np.sqrt(np.asarray(variance, np.float64) + np.square(noise))


def noise_ratios(sigma_noise: Array) -> tuple[float, Array]:
    """The noise of K outputs as sigma r_k: their geometric mean sigma, and the ratios r (K,), which make outputs in
    different units comparable. Of equal noises, the ratios are exactly 1."""
    noises = np.asarray(sigma_noise, np.float64)
    if (noises == noises[0]).all():
        return float(noises[0]), np.ones(len(noises))
    typical = float(np.exp(np.log(noises).mean()))
    return typical, noises / typical


def gaussian_interval(mean: Array, std: Array, level: float) -> tuple[Array, Array]:
    """Central interval of N(mean, std^2) that holds a share `level`: mean -+ z((1 + level) / 2) std."""
    half = statistics.NormalDist().inv_cdf((1 + level) / 2) * np.asarray(std, np.float64)
    centre = np.asarray(mean, np.float64)
    return centre - half, centre + half
