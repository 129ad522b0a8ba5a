"""Recipes by which the experiments train networks."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler, MultiStepLR, OneCycleLR

from demur.offline.runtime.progress import Track

Optimise = Callable[[nn.Module, int, int], tuple[Optimizer, LRScheduler | None]]
Vary = Callable[[Tensor, np.random.Generator], Tensor]
Look = Callable[[nn.Module, int], None]
BATCH, LEARNING_RATE, WEIGHT_DECAY = 128, 0.01, 5e-4
PADDING = 4


def same(x: Tensor, _: np.random.Generator) -> Tensor:
    """No variation."""
    return x


def varied(x: Tensor, generator: np.random.Generator) -> Tensor:
    """The whole batch mirrored or not, and moved by up to four pixels: cheap, and as good over many batches."""
    if generator.random() < 0.5:
        x = x.flip(3)
    down, right = (int(n) for n in generator.integers(0, 2 * PADDING + 1, 2))
    return F.pad(x, [PADDING] * 4)[:, :, down : down + x.shape[2], right : right + x.shape[3]]


def no_noise(_: Optimizer) -> AbstractContextManager[Any]:
    """Gradients at the weights themselves."""
    return nullcontext()


def no_look(_model: nn.Module, _step: int) -> None:
    """Nothing is taken from the network on its way."""


@dataclass(frozen=True)
class Recipe:
    """How to train: `optimise` gives the optimiser and its schedule for so many steps in all, and in an epoch.

    vary: augmentation of a batch; around: the context of a forward and backward pass; look: sees the network after each
    step, with the step's number in its epoch.
    """

    epochs: int
    optimise: Optimise
    batch: int = BATCH
    vary: Vary = same
    around: Callable[[Optimizer], AbstractContextManager[Any]] = no_noise
    look: Look = no_look


def one_cycle(model: nn.Module, steps: int, _: int) -> tuple[Optimizer, LRScheduler]:
    """AdamW with one cycle of the learning rate: as good as the long schedule after few epochs."""
    optimiser = torch.optim.AdamW(model.parameters(), LEARNING_RATE, weight_decay=WEIGHT_DECAY)
    return optimiser, OneCycleLR(optimiser, LEARNING_RATE, total_steps=steps)


def paper_schedule(*milestones: int) -> Optimise:
    """SGD with momentum 0.9 and weight decay 1e-4 from a rate of 0.1, a tenth of it after each of these epochs."""

    def optimise(model: nn.Module, _: int, epoch: int) -> tuple[Optimizer, LRScheduler]:
        optimiser = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9, weight_decay=1e-4)
        return optimiser, MultiStepLR(optimiser, [milestone * epoch for milestone in milestones])

    return optimise


def train(
    model: nn.Module, examples: tuple[Tensor, Tensor], recipe: Recipe, seed: int, device: torch.device, track: Track
) -> Optimizer:
    """Train in place, on `device`; the model comes back to the CPU in eval mode."""
    inputs, targets = examples
    model.to(device, memory_format=torch.channels_last).train()  # type: ignore[call-overload]
    starts = range(0, len(inputs), recipe.batch)
    optimiser, schedule = recipe.optimise(model, recipe.epochs * len(starts), len(starts))
    generator = np.random.default_rng(seed)
    for epoch in range(recipe.epochs):
        order = torch.as_tensor(generator.permutation(len(inputs)))
        steps = track(starts, f"seed {seed}, epoch {epoch + 1} of {recipe.epochs}", len(starts))
        for step, start in enumerate(steps):
            places = order[start : start + recipe.batch]
            x, y = recipe.vary(inputs[places].to(device), generator), targets[places].to(device)
            with recipe.around(optimiser):
                optimiser.zero_grad()
                F.cross_entropy(model(x), y).backward()  # type: ignore[no-untyped-call]
            optimiser.step()
            if schedule is not None:
                schedule.step()
            recipe.look(model, step)
    model.to("cpu", memory_format=torch.contiguous_format).eval()  # type: ignore[call-overload]
    return optimiser
