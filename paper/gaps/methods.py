"""What gives a regression its intervals: a noise alone, the paper's posteriors, an ensemble, added weights."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from demur.offline.data.likelihood import gaussian_log_likelihood
from demur.offline.features.activations import read_activations
from demur.offline.features.added_weights import AddedWeights
from demur.offline.features.layers import choose_layers
from demur.offline.laplace.prior import prior_share
from paper.tables.data import Table
from paper.tables.network import UciFitted
from paper.tables.posterior import PRIOR_GRID, Curvature, Judged

Array = npt.NDArray[Any]
FALSE_REJECT_RATE = 0.05
PRIOR_VARIANCES: Array = np.logspace(-2, 4, 61)  # of the added weights, in squares of the residual
NOISES: Array = np.geomspace(0.1, 1.0, 231)  # of the root mean square residual, 1 % apart


@dataclass(frozen=True)
class Predictive:
    """Mean and standard deviation (n,) of the predictive; score (n,): the larger, the less like the training data;
    rejected (n,): by the method's own threshold, None where it has none."""

    mean: Array
    std: Array
    score: Array
    rejected: Array | None = None


@dataclass(frozen=True)
class Method:
    """predict: of standardised inputs (n, F); facts: what was chosen while fitting."""

    predict: Callable[[Array], Predictive]
    facts: Mapping[str, Any] = field(default_factory=dict)


def rejecting(method: Method, held_out: Table) -> Method:
    """With the threshold that rejects 5 % of inputs like the held-out ones, at most (a conformal one)."""
    scores = np.sort(method.predict(held_out.x).score)
    threshold = scores[min(int(np.ceil((1 - FALSE_REJECT_RATE) * (len(scores) + 1))), len(scores)) - 1]

    def predict(x: Array) -> Predictive:
        found = method.predict(x)
        return Predictive(found.mean, found.std, found.score, found.score > threshold)

    return Method(predict, method.facts)


def mean_of(network: nn.Module, x: Array) -> Array:
    """Outputs (n,) float64."""
    first = next(network.parameters())
    with torch.no_grad():
        out: Array = network(torch.as_tensor(x).to(first))[:, 0].double().numpy()
    return out


def noise_alone(network: nn.Module, sigma: float) -> Method:
    """N(f, sigma^2): nothing tells one input from another."""

    def predict(x: Array) -> Predictive:
        mean = mean_of(network, x)
        return Predictive(mean, np.full(len(mean), sigma), np.zeros(len(mean)))

    return Method(predict, {"sigma_noise": sigma})


def held_out_noise(network: nn.Module, held_out: Table) -> float:
    """Root mean square residual."""
    return float(np.sqrt(np.mean((mean_of(network, held_out.x) - held_out.y[:, 0]) ** 2)))


def laplace(fitted: UciFitted, curvature: Curvature, indices: Tensor, validation: Table) -> Method:
    """The paper's: the noise learnt with the network; lambda the best of its grid on validation rows, times S / D."""
    chosen = indices.sort().values
    posterior, share = curvature.over(chosen), prior_share(len(chosen), fitted.total)
    jacobian = fitted.jacobian(validation.x)[:, chosen]
    judged = Judged(mean_of(fitted.model, validation.x)[:, None], jacobian, validation.y, fitted.sigma)

    def worth(precision: float) -> float:
        return judged.log_likelihood(posterior.variances(jacobian, precision * share).numpy())

    best = max(PRIOR_GRID, key=worth)

    def predict(x: Array) -> Predictive:
        variance = posterior.variances(fitted.jacobian(x)[:, chosen], best * share).numpy()
        return Predictive(mean_of(fitted.model, x), np.sqrt(variance + fitted.sigma**2), np.sqrt(variance))

    return Method(predict, {"prior_precision": best, "sigma_noise": fitted.sigma, "S": len(chosen)})


def ensemble(members: Sequence[UciFitted]) -> Method:
    """The Gaussian with the mean and the variance of the mixture (Lakshminarayanan et al., NeurIPS 2017)."""

    def predict(x: Array) -> Predictive:
        means = np.stack([mean_of(member.model, x) for member in members])
        noise, between = float(np.mean([member.sigma**2 for member in members])), means.var(0)
        return Predictive(means.mean(0), np.sqrt(between + noise), np.sqrt(between))

    return Method(predict)


def likeliest_added_weights(network: nn.Module, train: Table, validation: Table, seed: int) -> Method:
    """Added weights with the prior variance c and the noise under which the validation rows are likeliest.

    A control of the budget: where residuals of ordinary rows do not grow with the distance, c is next to zero.
    """
    layers = choose_layers(network, train.tensors()[0][:2], "table")
    assert layers is not None

    def activations(x: Array) -> dict[str, Tensor]:
        with torch.no_grad():
            read = read_activations(network, layers.paths, torch.as_tensor(x).float())
        return dict(zip(layers.paths, read, strict=True))

    added = AddedWeights.fit(layers, activations(train.x), seed)

    def variances(x: Array) -> tuple[Array, Array]:
        variance, distance = added.variances.of([values.double() for values in activations(x).values()]).numpy().T
        return variance, distance

    mean, unit = mean_of(network, validation.x)[:, None], variances(validation.x)[0]
    first = held_out_noise(network, validation)

    def worth(pair: tuple[float, float]) -> float:
        c, sigma = pair
        std = np.sqrt(c * unit + sigma**2)[:, None]
        return float(gaussian_log_likelihood(mean, std, validation.y).mean())

    pairs = [(float(c), float(sigma)) for c in (0.0, *(first**2 * PRIOR_VARIANCES)) for sigma in first * NOISES]
    scale, noise = max(pairs, key=worth)

    def predict(x: Array) -> Predictive:
        variance, distance = variances(x)
        return Predictive(mean_of(network, x), np.sqrt(scale * variance + noise**2), distance)

    return Method(predict, {"prior_variance": scale / noise**2, "sigma_noise": noise})
