"""Predictions averaged over samples of the weights: diagonal Laplace, SWAG and variational inference share it."""

import copy
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.experiments.frontier.methods import Method, ensemble

State = dict[str, Tensor]
SAMPLES = 16


def averaged(model: nn.Module, states: Iterable[State], facts: Mapping[str, Any]) -> Method:
    """The mean of the softmax outputs of copies of the network with these parameters and buffers."""
    models = []
    for state in states:
        models.append(copy.deepcopy(model))
        models[-1].load_state_dict(state, strict=False)
    return Method(ensemble(models).probabilities, float(len(models)), facts)


def gaussian_samples(mean: Mapping[str, Tensor], std: Mapping[str, Tensor], samples: int, seed: int) -> list[State]:
    """Parameters drawn from N(mean, diag(std^2)), by name."""
    generator = torch.Generator().manual_seed(seed)
    return [
        {name: value + std[name] * torch.randn(value.shape, generator=generator) for name, value in mean.items()}
        for _ in range(samples)
    ]


def parameters_of(model: nn.Module) -> State:
    """Copies of the parameters by name, on the CPU."""
    return {name: value.detach().cpu().clone() for name, value in model.named_parameters()}
