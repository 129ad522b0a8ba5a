"""`python -m docs.pictures`: draw what added weights change on two small problems, into docs/pictures.

Each panel shows the answers of a bundle that is fitted here, on the CPU, around the same network: with and without the
added weights. The seeds are fixed.
"""

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from matplotlib import pyplot as plt
from matplotlib.colors import LinearSegmentedColormap
from sklearn.datasets import make_moons
from torch import Tensor, nn

from benchmarks.core.plots import BLUE, ORANGE, save
from demur.offline import FitConfig, fit_bundle
from demur.service.inference.predictor import Prediction, Predictor

Array = npt.NDArray[Any]
Data = tuple[Tensor, Tensor]
FOLDER = Path(__file__).with_name("pictures")
YELLOW, PALE, REJECTED = "#f0e442", "#e4e4e4", "#ff8c8c"
STEPS, DPI, EXAMPLES, WEIGHTS = 2000, 80, 400, 200
EXTENT, GRID = 8.0, 161  # of the moons' region: the data lie within 2
GAP_EXTENT, BAND_EXTENT = 6.0, 6.0
CONFIDENCE = LinearSegmentedColormap.from_list("confidence", ["#ffffff", "#9ecae1", "#08306b"])


def main() -> None:
    """Draw both pictures."""
    moons()
    gap()


def moons() -> None:
    """Confidence of a classifier far around its data, and what its bundle rejects."""
    train, held_out = moon_data(seed=0), moon_data(seed=1)
    network = mlp(inputs=2, outputs=2)
    train_network(network, train, nn.functional.cross_entropy)
    axis = np.linspace(-EXTENT, EXTENT, GRID, dtype=np.float32)
    points = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
    alone = predict(network, train, held_out, points, FitConfig(added_weights=False))
    both = predict(network, train, held_out, points, FitConfig(score="distance"))
    figure, axes = plt.subplots(1, 3, figsize=(11, 3.9), sharey=True, layout="constrained")
    for place, title, probabilities, rejected in (
        (axes[0], "plain network", both.map_probabilities, None),
        (axes[1], "subnetwork alone", alone.probabilities, alone.rejected),
        (axes[2], "subnetwork and added weights", both.probabilities, both.rejected),
    ):
        confidence = np.asarray(probabilities).max(1).reshape(GRID, GRID)
        image = place.pcolormesh(axis, axis, confidence, cmap=CONFIDENCE, vmin=0.5, vmax=1)
        if rejected is not None:
            _hatch(place, axis, rejected.reshape(GRID, GRID))
        for label, colour in enumerate((ORANGE, YELLOW)):
            some = train[0][train[1] == label]
            place.scatter(some[:, 0], some[:, 1], s=2, color=colour, zorder=3)
        ticks = (-8, -4, 0, 4, 8)
        place.set(title=title, aspect="equal", xticks=ticks, yticks=ticks)
    figure.colorbar(image, ax=axes, label="confidence (hatched: rejected)", shrink=0.85)
    save(figure, FOLDER / "moons.png", {"quick": False}, DPI)


def gap() -> None:
    """Bands of a regression whose training data leave out the middle, and what its bundle rejects."""
    train, held_out = gap_data(seed=0), gap_data(seed=1)
    network = mlp(inputs=1, outputs=1)
    train_network(network, train, nn.functional.mse_loss)
    x = np.linspace(-GAP_EXTENT, GAP_EXTENT, 481, dtype=np.float32)
    figure, axes = plt.subplots(1, 2, figsize=(10, 3.6), sharey=True, layout="constrained")
    for place, title, added in zip(
        axes, ("subnetwork alone", "subnetwork and added weights"), (False, True), strict=True
    ):
        config = FitConfig(likelihood="regression", added_weights=added)
        found = predict(network, train, held_out, x[:, None], config)
        mean, deviation = found.mean[:, 0], np.asarray(found.std)[:, 0]
        place.fill_between(x, -BAND_EXTENT, BAND_EXTENT, where=found.rejected, color=PALE, linewidth=0)
        place.fill_between(x, mean - 2 * deviation, mean + 2 * deviation, color=ORANGE, alpha=0.4, linewidth=0)
        place.plot(x, mean, color=ORANGE)
        place.scatter(*train, s=4, color=BLUE, zorder=3)
        place.set(title=title, xlabel="input (grey: rejected)", ylim=(-BAND_EXTENT, BAND_EXTENT))
    axes[0].set_ylabel("mean and 2 standard deviations")
    save(figure, FOLDER / "gap.png", {"quick": False}, DPI)


def _hatch(place: Any, axis: Array, rejected: Array) -> None:
    filled = place.contourf(axis, axis, rejected.astype(float), levels=(0.5, 1.5), colors="none", hatches=("//",))
    filled.set_edgecolor(REJECTED)
    filled.set_linewidth(0)


def predict(network: nn.Module, train: Data, held_out: Data, points: Array, config: FitConfig) -> Prediction:
    """A bundle's predictions of points (B, d)."""
    config = config.model_copy(update={"subnetwork_size": WEIGHTS})
    with tempfile.TemporaryDirectory() as folder:
        path = fit_bundle(network, [train], Path(folder) / "bundle", calibration_loader=[held_out], config=config)
        return Predictor.load(path).predict(points)


def mlp(inputs: int, outputs: int) -> nn.Module:
    """Two hidden layers of 50."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(inputs, 50), nn.ReLU(), nn.Linear(50, 50), nn.ReLU(), nn.Linear(50, outputs))


def train_network(network: nn.Module, data: Data, loss: Callable[[Tensor, Tensor], Tensor]) -> None:
    """On all examples at once."""
    optimiser = torch.optim.AdamW(network.parameters(), lr=5e-3, weight_decay=1e-2)
    for _ in range(STEPS):
        optimiser.zero_grad()
        loss(network(data[0]), data[1]).backward()  # type: ignore[no-untyped-call]
        optimiser.step()


def moon_data(seed: int) -> Data:
    """Points (N, 2) around the origin, and the moon of each."""
    x, y = make_moons(EXAMPLES, noise=0.15, random_state=seed)
    return torch.as_tensor(x - x.mean(0), dtype=torch.float32), torch.as_tensor(y)


def gap_data(seed: int) -> Data:
    """y = sin(1.5 x) + 0.3 x + 0.15 n for x in (-4, -1) and (1, 4)."""
    generator = np.random.default_rng(seed)
    x = generator.uniform(1, 4, EXAMPLES) * generator.choice([-1, 1], EXAMPLES)
    y = np.sin(1.5 * x) + 0.3 * x + 0.15 * generator.standard_normal(EXAMPLES)
    return torch.as_tensor(x[:, None], dtype=torch.float32), torch.as_tensor(y[:, None], dtype=torch.float32)


if __name__ == "__main__":
    main()
