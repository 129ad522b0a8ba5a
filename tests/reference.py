"""The oracle: everything in float64, one example and one output at a time, straight from the definitions.

Slow and obvious on purpose. It shares no code with the packages it checks.
"""

import copy
import itertools
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


def output_hessian(logits: Array, likelihood: str, sigma_noise: float | None) -> Array:
    """Lambda (K, K): diag(p) - p p^T, or I / sigma^2."""
    if likelihood == "classification":
        p = softmax(logits)
        return np.diag(p) - np.outer(p, p)
    assert sigma_noise is not None
    return np.eye(len(logits)) / sigma_noise**2


def posterior_precision(
    mean: Array, jacobian: Array, likelihood: str, prior: float, sigma_noise: float | None = None
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


def reduced_head_variance(features: Array, covariances: Array, basis: Array, prior: float) -> Array:
    """h^T (P Sigma_kk P + (I - P) / prior) h with P = B B^T, (B, K); features h (B, m), covariances (K, m, m)."""
    projection = basis @ basis.T
    outside = (np.eye(len(basis)) - projection) / prior
    return np.array([[h @ (projection @ s @ projection + outside) @ h for s in covariances] for h in features])


def filled_variance(mean: Array, jacobian: Array, precision: Array, kind: str, count: int) -> Array:
    """(B, K): some variances computed, and the others filled in from them, one example at a time."""
    rows = []
    for f, j in zip(mean, jacobian, strict=True):
        order = sorted(range(len(f)), key=lambda k: -f[k])[:count]
        if kind == "margin":
            difference = j[order[0]] - j[order[1]]
            rows.append([difference @ np.linalg.solve(precision, difference)] * len(f))
            continue
        known = {k: j[k] @ np.linalg.solve(precision, j[k]) for k in order}
        average = sum(known.values()) / count
        rows.append([known.get(k, average) if kind == "top" else average for k in range(len(f))])
    return np.array(rows)


def curvature_left_out(logits: Array, rows: int) -> Array:
    """sum over the classes that are not the `rows` - 1 most probable ones of p_k (e_k - q) (e_k - q)^T, (K, K)."""
    p, identity = softmax(logits), np.eye(len(logits))
    others = sorted(range(len(p)), key=lambda k: -p[k])[rows - 1 :]
    q = sum(p[k] * identity[k] for k in others) / sum(p[k] for k in others)
    left_out: Array = sum(p[k] * np.outer(identity[k] - q, identity[k] - q) for k in others)
    return left_out


def probit_probabilities(mean: Array, var: Array) -> Array:
    """softmax(f / sqrt(1 + pi / 8 var))."""
    return np.stack([softmax(f / np.sqrt(1 + math.pi / 8 * v)) for f, v in zip(mean, var, strict=True)])


def entropy(p: Any) -> float:
    return -sum(float(value) * math.log(value) for value in p if value > 0)


def cascade_score(first: float, full: float, low: float, high: float, threshold: float) -> float:
    """The first stage's score outside the band, on the scale of the full one's threshold; the full one's inside."""
    if math.isfinite(first) and first < low:
        return threshold * (first / low)
    if math.isfinite(first) and first > high:
        return threshold * (first / high)
    return full


# --- what selection strategies rank by; jacobian (N, K, D) from `full_jacobian`


def mean_squared_jacobian(jacobian: Array) -> Array:
    """mean_n sum_k J_nkd^2, (D,)."""
    return sum(row**2 for example in jacobian for row in example) / len(jacobian)


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
        scaled = [m / math.sqrt(temperature**2 + math.pi / 8 * v) for m, v in zip(mean, variance, strict=True)]
        return scaled[int(target)] - math.log(sum(math.exp(s) for s in scaled))
    return sum(
        -0.5 * math.log(2 * math.pi * (v + sigma**2)) - (y - m) ** 2 / (2 * (v + sigma**2))
        for m, v, y in zip(mean, variance, target, strict=True)
    )


def smoothed_p_value(score: float, before: list[float], tie: float) -> float:
    """(#{s_i > s} + u #{s_i = s}) / n over `before` and the score itself."""
    return (sum(other > score for other in before) + tie * (1 + sum(other == score for other in before))) / (
        len(before) + 1
    )


def drift_factors(p: float) -> list[float]:
    """What each bet against exchangeability multiplies its capital by."""
    return [1 + 0.5 - p, 1.0, 1 - 0.5 + p, 0.8 / p**0.2, 0.95 / p**0.05]


def accuracy_factors(wrong: bool, accuracy: float) -> list[float]:
    """The likelihood ratio of a coin whose odds of an error are r times as bad to the one with the accuracy."""
    factors = []
    for r in (1.5, 2, 4, 8):
        odds = r * (1 - accuracy) / accuracy
        worse = odds / (1 + odds)
        factors.append(worse / (1 - accuracy) if wrong else (1 - worse) / accuracy)
    return factors


def betting_capital(observed: list[list[float]], jump: float) -> list[float]:
    """The capital after each of the observations, of which each has one factor a bet: of gamblers who begin at step k
    with 1 / (k (k + 1)), and what no one has yet."""
    gamblers, capital = list[list[float]](), list[float]()
    for k, factors in enumerate(observed, 1):
        for number, bets in enumerate(gamblers):
            total = sum(bets)
            gamblers[number] = [(1 - jump) * bet + jump / len(bets) * total for bet in bets]
        gamblers.append([1 / (k * (k + 1)) / len(factors)] * len(factors))
        gamblers = [[bet * factor for bet, factor in zip(bets, factors, strict=True)] for bets in gamblers]
        capital.append(sum(map(sum, gamblers)) + 1 / (k + 1))
    return capital


def left_out_p_value(scores: list[float], i: int) -> float:
    """The conformal p-value of score i against all others."""
    others = scores[:i] + scores[i + 1 :]
    return (1 + sum(other >= scores[i] for other in others)) / (len(others) + 1)


def kolmogorov_smirnov(served: list[float], reference: list[float], bounds: list[float]) -> float:
    """The largest difference of the two cumulative shares, at these bounds."""

    def share(values: list[float], bound: float) -> float:
        return sum(value <= bound for value in values) / len(values)

    return max(abs(share(served, bound) - share(reference, bound)) for bound in bounds)


def population_stability_index(
    served: list[float], reference: list[float], bins: list[tuple[float, float]], least: float
) -> float:
    """sum (s - r) ln(s / r) over bins (below, bound], with served shares of `least` or more."""

    def share(values: list[float], below: float, bound: float) -> float:
        return sum(below < value <= bound for value in values) / len(values)

    shares = [(max(least, share(served, *edges)), share(reference, *edges)) for edges in bins]
    return sum((s - r) * math.log(s / r) for s, r in shares)


def calibration_error(confidences: list[float], right: list[bool], bins: int) -> float:
    """The mean over examples of |share right - mean confidence| in the bin of each, bins (i / b, (i + 1) / b]."""
    total = 0.0
    for i in range(bins):
        inside = [(c, r) for c, r in zip(confidences, right, strict=True) if i / bins < c <= (i + 1) / bins]
        total += abs(sum(c - r for c, r in inside))
    return total / len(confidences)


def set_score(probabilities: Any, label: int, penalty: float, unpenalised: int) -> float:
    """The probability of the classes down to `label`, and the penalty for its rank; ties in the classes' order."""
    ranked = sorted(range(len(probabilities)), key=lambda k: (-probabilities[k], k))
    rank = ranked.index(label) + 1
    return sum(probabilities[k] for k in ranked[:rank]) + penalty * max(0, rank - unpenalised)


def quantile_of(scores: Any, level: Any) -> float:
    """The k-th smallest score, k the least whole number that is at least (n + 1) level; infinite without one."""
    k = math.ceil((len(scores) + 1) * level)
    return sorted(scores)[k - 1] if k <= len(scores) else math.inf


def binomial_below(n: int, k: int, x: float) -> float:
    """P(Binomial(n, x) < k), term by term."""
    return math.fsum(math.comb(n, i) * x**i * (1 - x) ** (n - i) for i in range(k))


# --- out-of-distribution scores of one example


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


# --- selective classification: score and error (0 or 1) of each example


def aurc(scores: list[float], wrong: list[int]) -> float:
    """The mean, over examples, of the error rate among those that score no higher."""
    risks = [[w for t, w in zip(scores, wrong, strict=True) if t <= s] for s in scores]
    return sum(sum(risk) / len(risk) for risk in risks) / len(scores)


def augrc(scores: list[float], wrong: list[int]) -> float:
    """How often an error is accepted if a random example's score is the threshold; ties half."""
    pairs = [w * (1.0 if s < t else 0.5 if s == t else 0.0) for s, w in zip(scores, wrong, strict=True) for t in scores]
    return sum(pairs) / len(scores) ** 2


# --- the Mahalanobis distance of features


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
