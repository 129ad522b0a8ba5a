"""What one temperature does, for one network and for an ensemble: softmax(f / T), T chosen on held-out images."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from benchmarks.experiments.frontier.methods import BATCH, Method
from demur.offline.data.likelihood import class_log_likelihood
from demur.service.maths.predictive import softmax

Array = npt.NDArray[np.float64]
TEMPERATURE_GRID: Array = np.logspace(-1, 1, 201)


class Logits:
    """The outputs (n, K) float64 of a network for sets of images, each computed once and kept."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._found: dict[int, tuple[Tensor, Array]] = {}

    def __call__(self, x: Tensor) -> Array:
        if id(x) not in self._found:
            with torch.inference_mode():
                parts = [self._model(part).double() for part in torch.split(x, BATCH)]
            self._found[id(x)] = x, torch.cat(parts).numpy()  # with the images, or their id could be another's
        return self._found[id(x)][1]


def averaged(networks: Sequence[Logits], x: Tensor, temperature: float) -> Array:
    """The mean over the networks of softmax(f / T), (n, K)."""
    mean: Array = np.mean([softmax(logits(x) / temperature) for logits in networks], axis=0)
    return mean


def scores_of(networks: Sequence[Logits], held_out: tuple[Tensor, Tensor]) -> Array:
    """Mean held-out log-likelihood at each of `TEMPERATURE_GRID`, (T,)."""
    inputs, classes = held_out[0], held_out[1].numpy()
    return np.array([class_log_likelihood(averaged(networks, inputs, t), classes).mean() for t in TEMPERATURE_GRID])


def tempered(networks: Sequence[Logits], held_out: tuple[Tensor, Tensor], budget: float = 0.0) -> Method:
    """At the largest temperature that costs at most `budget` nats of held-out log-likelihood below the best."""
    scores = scores_of(networks, held_out)
    return at(networks, float(TEMPERATURE_GRID[scores >= scores.max() - budget].max()))


def at(networks: Sequence[Logits], temperature: float) -> Method:
    """At this temperature."""
    return Method(
        lambda x: averaged(networks, x, temperature), float(len(networks)), facts={"temperature": temperature}
    )
