"""A second mean beside the network's: a second head, or a small second network, for about a fifth of a pass more.

    softmax(a f + b g),   f the network's logits, g the other's,

a and b fitted to held-out images, as is the one temperature (b = 0) that it is compared with. The heads are logistic
regressions on training images: on the pooled activations of the middle layer, or on the random features of the added
weights, alone or with f / T as an offset (the added weights' posterior then has a mean that is not zero). Their penalty
is chosen on the same held-out images.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from scipy.optimize import minimize  # type: ignore[import-untyped]
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.experiments.frontier import networks
from benchmarks.experiments.frontier.data import Problem
from benchmarks.experiments.kept import trained_once
from benchmarks.experiments.trials.link import best_temperature, log_likelihood
from benchmarks.experiments.trials.reading import BATCH, USUAL, Images, Reading, groups
from offline.data.held_out import HeldOut
from offline.features.added_weights import LINK_FEATURES, FeatureVariance
from offline.fit import TUNING_SHARE
from offline.runtime.progress import Track

Array = npt.NDArray[Any]
PENALTIES = (1e-3, 1e-5)
STEPS = 50
PLAIN, TEMPERED, SECOND = "plain network", "one temperature", "small second network"
HEADS = ("head on the middle layer", "head on random features", "mean of the added weights")


class SmallDigits(nn.Module):
    """`DigitNetwork` with half the channels: 0.3 of its multiplications."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 4, 3, padding=1), nn.Conv2d(4, 8, 3, padding=1)
        self.head = nn.Linear(392, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        logits: Tensor = self.head(F.max_pool2d(F.relu(self.conv2(x)), 2).flatten(1))
        return logits


@dataclass(frozen=True)
class Second:
    """The other's logits for the images that tune, (n, K), and for each test set."""

    tuning: Array
    tests: dict[str, Array]


def rows(reading: Reading, problem: Problem, small: nn.Module | None) -> dict[str, dict[str, float]]:
    """Method -> mean log-likelihood on each group of test sets, and accuracy on usual images."""
    tuning, tests = reading.tuning, reading.tests
    temperature, _ = best_temperature(tuning.logits, np.zeros(len(tuning.logits)), tuning.classes)
    own = {name: images.logits for name, images in tests.items()}
    found = {PLAIN: _scored(tests, own), TEMPERED: _scored(tests, {name: f / temperature for name, f in own.items()})}
    for name, fits in heads(reading, temperature).items():
        joined = [_joined(reading, second) for second in fits]
        found[name] = max(joined, key=lambda pair: pair[0])[1]
    if small is None:
        return found
    inputs = {name: problem.tests[name][: len(f)] for name, f in own.items()}
    held, _ = HeldOut(*problem.held_out).split(TUNING_SHARE, 0)
    second = Second(_logits(small, held.inputs), {name: _logits(small, x) for name, x in inputs.items()})
    found[SECOND] = _joined(reading, second)[1]
    return found


def heads(reading: Reading, temperature: float) -> dict[str, list[Second]]:
    """Of each kind of head one for each penalty."""
    generator = torch.Generator().manual_seed(0)
    fitted = FeatureVariance.fit(reading.train.parts, LINK_FEATURES, with_lengths=False, generator=generator)
    mean, deviation = reading.train.middle.mean(0), reading.train.middle.std(0).clamp(min=1e-6)

    def middle(images: Images) -> Tensor:
        return (images.middle - mean) / deviation

    def random(images: Images) -> Tensor:
        t = fitted.coordinates.of(images.parts)
        return math.sqrt(2) * torch.cos(t @ fitted.frequencies + fitted.phases).float()

    plans: dict[str, tuple[Callable[[Images], Tensor], float]] = {
        HEADS[0]: (middle, 0.0),
        HEADS[1]: (random, 0.0),
        HEADS[2]: (random, 1 / temperature),
    }
    found = {}
    for name, (features, offset) in plans.items():
        x, classes = features(reading.train), torch.as_tensor(reading.train.classes)
        known = {id(images): features(images) for images in (reading.tuning, *reading.tests.values())}
        fits = logistic(x, classes, offset * torch.as_tensor(reading.train.logits).float())
        found[name] = [
            Second(
                _affine(known[id(reading.tuning)], fit),
                {test: _affine(known[id(images)], fit) for test, images in reading.tests.items()},
            )
            for fit in fits
        ]
    return found


def small_network(problem: Problem, seed: int, tag: str, epochs: int, track: Track) -> nn.Module:
    """Trained as the network is, from another seed."""
    torch.manual_seed(seed + 1000)
    model = SmallDigits()

    def train() -> None:
        networks.train(model, problem.name, problem.train, epochs, seed + 1000, track)

    return trained_once(f"trials-{problem.name}-small-{seed}-{tag}", model, train)


def logistic(x: Tensor, classes: Tensor, offset: Tensor) -> list[tuple[Tensor, Tensor]]:
    """For each penalty W (F, K) and b (K,) of least mean cross-entropy of offset + x W + b, plus penalty |W|^2; each
    fit starts from the one before."""
    outputs, fits = offset.shape[1], []
    weight, bias = torch.zeros(x.shape[1], outputs, requires_grad=True), torch.zeros(outputs, requires_grad=True)
    for penalty in PENALTIES:
        optimiser = torch.optim.LBFGS([weight, bias], max_iter=STEPS, line_search_fn="strong_wolfe")

        def closure(optimiser: torch.optim.LBFGS = optimiser, penalty: float = penalty) -> Tensor:
            optimiser.zero_grad()
            loss = F.cross_entropy(offset + x @ weight + bias, classes) + penalty * weight.square().sum()
            loss.backward()  # type: ignore[no-untyped-call]
            return loss

        optimiser.step(closure)  # type: ignore[no-untyped-call]
        fits.append((weight.detach().clone(), bias.detach().clone()))
    return fits


def _affine(x: Tensor, fit: tuple[Tensor, Tensor]) -> Array:
    weight, bias = fit
    return np.asarray((x @ weight + bias).double().numpy())


def _logits(model: nn.Module, inputs: Tensor) -> Array:
    with torch.inference_mode():
        return np.asarray(torch.cat([model(x) for x in torch.split(inputs, BATCH)]).double().numpy())


def _joined(reading: Reading, second: Second) -> tuple[float, dict[str, float]]:
    """The held-out log-likelihood of the likeliest a and b, and the row."""
    f, classes = reading.tuning.logits, reading.tuning.classes

    def cost(weights: Array) -> float:
        return -log_likelihood(weights[0] * f + weights[1] * second.tuning, classes)

    least = minimize(cost, np.array([1.0, 0.0]), method="Nelder-Mead", options={"xatol": 1e-3, "fatol": 1e-6})
    a, b = least.x
    logits = {name: a * images.logits + b * second.tests[name] for name, images in reading.tests.items()}
    row = _scored(reading.tests, logits)
    return -float(least.fun), {**row, "a": float(a), "b": float(b)}


def _scored(tests: dict[str, Images], logits: dict[str, Array]) -> dict[str, float]:
    found = groups({name: log_likelihood(logits[name], images.classes) for name, images in tests.items()})
    return {**found, "accuracy": float((logits[USUAL].argmax(axis=1) == tests[USUAL].classes).mean())}
