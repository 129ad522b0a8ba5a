"""A control without any posterior: distances from the training data scale the temperature.

    softmax(f / tau(x)),  tau = T exp(sum_l a_l max(0, z_l)),  a_l >= 0,

z_l the logarithm of layer l's Mahalanobis distance, standardised on held-out images; the distance is to the nearest
class mean, with one covariance for all (Lee et al., NeurIPS 2018), of the activations that added weights read. T and a
are the most likely ones under noise, inversion and erasing of held-out images that cost at most the budget on the
images themselves.
"""

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from scipy.optimize import minimize  # type: ignore[import-untyped]
from torch import Tensor, nn

from benchmarks.datasets.shifts import synthetic_shifts
from benchmarks.experiments.frontier.methods import BATCH, Examples, Method
from benchmarks.experiments.frontier.temperatures import TEMPERATURE_GRID, Logits, scores_of
from demur.offline.data.changes import kind_of
from demur.offline.data.likelihood import class_log_likelihood
from demur.offline.features.activations import read_activations
from demur.offline.features.layers import choose_layers
from demur.service.maths.predictive import softmax

Array = npt.NDArray[np.float64]
FITTED_TO = ("noise", "inversion", "erasing")
SHRINKAGE = 1e-3  # of the covariance towards its mean variance
MOST = 5.0  # of a_l


class ClassDistances:
    """log Mahalanobis distances (n, L) of images, a column for each layer."""

    def __init__(self, model: nn.Module, paths: Sequence[str], train: Examples) -> None:
        self._model, self._paths = model, paths
        self._layers = [_gaussian(h, train[1]) for h in self._read(train[0])]

    def __call__(self, x: Tensor) -> Array:
        columns = [_log_distance(h, *layer) for h, layer in zip(self._read(x), self._layers, strict=True)]
        return torch.stack(columns, dim=1).numpy()

    def _read(self, x: Tensor) -> list[Tensor]:
        with torch.no_grad():
            parts = [read_activations(self._model, self._paths, part) for part in torch.split(x, BATCH)]
        return [torch.cat(columns).double() for columns in zip(*parts, strict=True)]


def _gaussian(h: Tensor, classes: Tensor) -> tuple[Tensor, Tensor]:
    """Means (K, F) of the classes, and the inverse W (F, F) of a root of their common covariance."""
    means = torch.stack([h[classes == k].mean(0) for k in range(int(classes.max()) + 1)])
    moved = h - means[classes]
    covariance = moved.T @ moved / len(h)
    covariance += SHRINKAGE * covariance.diagonal().mean() * torch.eye(len(covariance), dtype=h.dtype)
    return means, torch.linalg.inv(torch.linalg.cholesky(covariance)).T


def _log_distance(h: Tensor, means: Tensor, whitening: Tensor) -> Tensor:
    """(n,): of the nearest mean."""
    return torch.cdist(h @ whitening, means @ whitening).amin(1).log()


def distance_scaled(model: nn.Module, logits: Logits, train: Examples, held_out: Examples, budget: float) -> Method:
    """The control, with T and a fitted; the budget in nats below the best temperature."""
    layers = choose_layers(model, held_out[0][:2], kind_of(held_out[0]))
    assert layers is not None
    distances = ClassDistances(model, layers.score, train)
    inputs, classes = held_out[0], held_out[1].numpy()
    usual = distances(inputs)
    mean, deviation = usual.mean(0), usual.std(0)

    def beyond(x: Tensor) -> Array:
        above: Array = np.maximum((distances(x) - mean) / deviation, 0.0)
        return above

    shifted = synthetic_shifts(inputs, 0, FITTED_TO).values()
    ordinary = logits(inputs), beyond(inputs)
    changed = np.concatenate([logits(x) for x in shifted]), np.concatenate([beyond(x) for x in shifted])
    plain = scores_of([logits], held_out)
    start = np.array([math.log(float(TEMPERATURE_GRID[plain.argmax()])), *np.zeros(len(layers.score))])
    found = minimize(
        lambda values: -_worth(values, *changed, np.tile(classes, len(FITTED_TO))),
        start,
        method="SLSQP",
        bounds=[(start[0] - 1, start[0] + 1), *[(0.0, MOST)] * len(layers.score)],
        constraints={"type": "ineq", "fun": lambda values: _worth(values, *ordinary, classes) - plain.max() + budget},
    ).x
    facts = {"temperature": math.exp(found[0]), "slopes": dict(zip(layers.score, found[1:].tolist(), strict=True))}
    return Method(lambda x: _probabilities(found, logits(x), beyond(x)), 1.0, facts=facts)


def _probabilities(values: Array, outputs: Array, beyond: Array) -> Array:
    """values: log T and a."""
    probabilities: Array = softmax(outputs / np.exp(values[0] + beyond @ values[1:])[:, np.newaxis])
    return probabilities


def _worth(values: Array, outputs: Array, beyond: Array, classes: Array) -> float:
    return float(class_log_likelihood(_probabilities(values, outputs, beyond), classes).mean())
