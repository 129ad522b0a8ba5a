"""Two versions of the digits' bundle: the same network, trained from two seeds."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from scipy import ndimage  # type: ignore[import-untyped]
from torch import Tensor, nn

from benchmarks.core.folders import ROOT
from demur.offline.fit import fit_bundle
from demur.offline.recipes.load import load_recipe

Array = npt.NDArray[Any]
Data = tuple[Tensor, Tensor]
EPOCHS, BATCH = 20, 64
NOISE = 0.06  # standard deviation, of pixels from 0 to 1: no two requests are the same
COPIES, HELD_OUT_COPIES = 2, 4
DEGREES = 8.0


class Population:
    """The digits that the network was not trained on, each time with other noise: what is held out, and the requests.

    Both are drawn from the same ones, so that without drift they are exchangeable, however many requests there are.
    """

    def __init__(self, seed: int) -> None:
        digits = load_recipe(ROOT / "examples" / "digits.py").module
        parts = zip(digits.calibration_data(), digits.test_data(), strict=True)
        self.images, self.labels = (torch.cat(pair).numpy() for pair in parts)
        self._turned = ndimage.rotate(self.images, DEGREES, axes=(2, 3), reshape=False, order=1)
        self._random = np.random.default_rng(seed)

    def draw(self, count: int, turned: bool = False) -> tuple[Array, Array]:
        """Images (count, 1, 8, 8), and their labels."""
        rows = self._random.integers(len(self.labels), size=count)
        return noisy((self._turned if turned else self.images)[rows], self._random), self.labels[rows]


def noisy(images: Array, random: np.random.Generator) -> Array:
    """With noise of their own, as 32-bit floats from 0 to 1."""
    found: Array = np.clip(images + NOISE * random.standard_normal(images.shape, np.float32), 0, 1)
    return found.astype(np.float32)


def fit_version(version: int, out: Path) -> Path:
    """Trained from this seed, and fitted with the recipe's settings."""
    digits = load_recipe(ROOT / "examples" / "digits.py").module
    population, random = Population(version), np.random.default_rng(version)

    def repeated(images: Array, labels: Array, copies: int) -> Data:
        many = noisy(np.concatenate([images] * copies), random)
        return torch.from_numpy(many), torch.from_numpy(np.concatenate([labels] * copies))

    images, labels = digits.train_data()
    train = repeated(images.numpy(), labels.numpy(), COPIES)
    held_out = repeated(population.images, population.labels, HELD_OUT_COPIES)
    network = train_network(digits.network, train, version)
    config = digits.config.model_copy(update={"version": f"{version}"})
    return fit_bundle(network, train, out, calibration_loader=held_out, config=config)


def train_network(make: Callable[[], nn.Module], data: Data, seed: int) -> nn.Module:
    """As the recipe does, for fewer epochs of more examples."""
    torch.manual_seed(seed)
    network = make()
    optimiser = torch.optim.AdamW(network.parameters(), lr=2e-3, weight_decay=1e-2)
    for _ in range(EPOCHS):
        for rows in torch.randperm(len(data[0])).split(BATCH):  # type: ignore[no-untyped-call]
            optimiser.zero_grad()
            nn.functional.cross_entropy(network(data[0][rows]), data[1][rows]).backward()  # type: ignore[no-untyped-call]
            optimiser.step()
    return network
