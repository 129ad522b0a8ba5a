"""Three small problems for `auto`: networks trained for a moment, and what a fit would hand on."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from inspect import signature
from typing import Any

import torch
from torch import Tensor, nn

from offline.data.held_out import HeldOut
from offline.data.likelihood import Task
from offline.laplace.noise import residual_noise
from offline.selection.auto.context import AutoContext, AutoOptions
from offline.selection.auto.places import affordable_places, weights_in
from offline.selection.live_weights import live_candidates
from offline.selection.registry import select_candidate, sharing_squares
from offline.selection.subnetwork import Subnetwork
from tests.support.selections import context as selection_context

BUDGET = 0.05


def image_data(count: int, seed: int) -> tuple[Tensor, Tensor]:
    """A bright bar in one of four places."""
    generator = torch.Generator().manual_seed(100 + seed)
    targets = torch.randint(0, 4, (count,), generator=generator)
    inputs = 0.4 * torch.randn(count, 1, 8, 8, generator=generator)
    inputs[torch.arange(count), 0, 2 * targets] += 1.0
    return inputs, targets


def table_data(count: int, seed: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(200 + seed)
    inputs = torch.randn(count, 3, generator=generator)
    noise = 0.2 * torch.randn(count, 2, generator=generator)
    return inputs, torch.stack([inputs[:, 0].sin(), inputs[:, 1] * inputs[:, 2]], 1) + noise


def token_data(count: int, seed: int) -> tuple[Tensor, Tensor]:
    """The class is the more frequent half of the vocabulary."""
    generator = torch.Generator().manual_seed(300 + seed)
    inputs = torch.randint(0, 12, (count, 7), generator=generator)
    return inputs, ((inputs >= 6).sum(1) > 3).long()


class Tokens(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.inner, self.head = nn.Embedding(12, 6), nn.Linear(6, 8), nn.Linear(8, 2)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(torch.relu(self.inner(self.embedding(tokens).mean(1))))


def image_network() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 6, 3, padding=1),
        nn.BatchNorm2d(6),
        nn.ReLU(),
        nn.Conv2d(6, 8, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(128, 12),
        nn.ReLU(),
        nn.Linear(12, 4),
    )


def table_network() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 20), nn.Tanh(), nn.Linear(20, 12), nn.Tanh(), nn.Linear(12, 2))


KINDS: dict[str, tuple[Callable[[], nn.Module], Callable[[int, int], tuple[Tensor, Tensor]], Task, int]] = {
    "images": (image_network, image_data, "classification", 4),
    "table": (table_network, table_data, "regression", 2),
    "tokens": (Tokens, token_data, "classification", 2),
}


def context_of(kind: str, size: int = 40, **changes: Any) -> AutoContext:
    """A network trained for a moment, and what a fit would hand on."""
    build, data, likelihood, outputs = KINDS[kind]
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = build()
        trained(model, *data(120, 0), likelihood)
    train = [tuple(part) for part in zip(*(t.split(50) for t in data(120, 0)), strict=True)]
    tuning = HeldOut(*data(24, 1))
    if likelihood == "regression" and "sigma_noise" not in changes:
        changes["sigma_noise"] = residual_noise(model, tuning)
    options = {name: changes.pop(name) for name in signature(AutoOptions).parameters if name in changes}
    changes = {"max_cost": 1000.0, "added_weights": False, "effort": "thorough", **changes}
    whole = selection_context(model, train, size, outputs, likelihood, uncertainty_budget=BUDGET, **changes)
    (places, prices, left_out), checked = affordable_places(whole), AutoOptions(**options)
    reached = replace(whole, candidate_weights=weights_in(places))
    live, dead = live_candidates(reached)
    by_name = partial(select_candidate, sharing_squares(replace(reached, candidate_weights=live), places, checked))
    return AutoContext(whole.job, tuning, places, prices, live, dead, by_name, checked, left_out=left_out)


def trained(model: nn.Module, inputs: Tensor, targets: Tensor, likelihood: Task) -> None:
    optimiser = torch.optim.Adam(model.parameters(), 0.01)
    loss = nn.CrossEntropyLoss() if likelihood == "classification" else nn.MSELoss()
    for _ in range(60):
        optimiser.zero_grad()
        loss(model(inputs), targets).backward()
        optimiser.step()


def explanation_of(result: Subnetwork) -> str:
    assert result.explanation is not None
    return result.explanation
