"""What bundles predict for labelled examples that their networks were not trained on: pools to draw splits from."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from benchmarks.core.settings import Settings
from benchmarks.datasets import mnist, uci
from benchmarks.experiments.frontier.data import HELD_OUT, cifar_images, load, normalise
from benchmarks.experiments.frontier.networks import EPOCHS, DigitNetwork, PhotoNetwork, trained, trained_on
from demur.offline.config import FitConfig
from demur.offline.fit import fit_bundle
from demur.service.inference.predictor import Prediction, Predictor

Array = npt.NDArray[Any]
Examples = tuple[Tensor, Tensor]  # inputs and targets
SIZE, CURVATURE, BATCH = 500, 4000, 200
DIGITS_STEPS, CIFAR100_EPOCHS = 600, 30
WIDTH, STEPS, LEARNING_RATE = 50, 2500, 0.01  # of the perceptrons of regressions
WINE_DECAY, TOY_DECAY = 5e-3, 1e-4
TOY_EXAMPLES, FREEDOM = 6000, 3


@dataclass(frozen=True)
class Pool:
    """score (n,), probabilities (n, K) and true classes (n,); how many examples of a split tune and calibrate."""

    score: Array
    probabilities: Array
    targets: Array
    tuning: int
    calibration: int


@dataclass(frozen=True)
class ValuePool:
    """score (n,), mean, std and targets (n, K) of a regression; how many examples of a split calibrate."""

    score: Array
    mean: Array
    std: Array
    targets: Array
    calibration: int


@dataclass(frozen=True)
class Fitted:
    """A trained network, the data of the fit, and test data."""

    model: nn.Module
    train: Examples
    held_out: Examples
    test: Examples


def pool(name: str, settings: Settings) -> Pool:
    """Fit a bundle for the data set called `name`, and predict its held-out and test examples once.

    Some of the held-out examples tuned the fit. This does no harm: a split takes any examples of the pool at random.
    """
    found, tuning, calibration = CLASSES[name](settings)
    prediction, targets = _predicted(found, name, settings, "classification")
    assert prediction.probabilities is not None
    return Pool(prediction.score, prediction.probabilities, targets, tuning, calibration)


def value_pool(name: str, settings: Settings) -> ValuePool:
    """The same for a regression."""
    found, calibration = VALUES[name](settings)
    prediction, targets = _predicted(found, name, settings, "regression")
    assert prediction.std is not None
    return ValuePool(prediction.score, prediction.mean.astype(np.float64), prediction.std, targets, calibration)


def _predicted(
    found: Fitted, name: str, settings: Settings, likelihood: Literal["classification", "regression"]
) -> tuple[Prediction, Array]:
    folder = settings.scratch / f"guarantees-{name}"
    loader = DataLoader(TensorDataset(*(part[:CURVATURE] for part in found.train)), batch_size=256)
    config = FitConfig(likelihood=likelihood, subnetwork_size=SIZE, selection="auto")
    fit_bundle(found.model, loader, folder, calibration_loader=[found.held_out], config=config)
    predictor = Predictor.load(folder, threads=1)
    inputs, targets = (torch.cat(pair) for pair in zip(found.held_out, found.test, strict=True))
    parts = torch.split(inputs, BATCH)
    answers = [predictor.predict(part.numpy()) for part in settings.track(parts, f"{name}: predictions", len(parts))]
    return Prediction.concatenate(answers), targets.numpy()


def _mnist(settings: Settings) -> tuple[Fitted, int, int]:
    problem = load("mnist", 100)
    model = trained(problem, 0, 0.0, "full", EPOCHS["mnist"], settings.track)
    return Fitted(model, problem.train, problem.held_out, mnist.examples("mnist", "t10k")), 2000, 2000


def _fashion(settings: Settings) -> tuple[Fitted, int, int]:
    (inputs, targets), test = (mnist.examples("fashion-mnist", part) for part in ("train", "t10k"))
    train, held_out = (inputs[:-HELD_OUT], targets[:-HELD_OUT]), (inputs[-HELD_OUT:], targets[-HELD_OUT:])
    torch.manual_seed(0)
    model = trained_on("guarantees-fashion", DigitNetwork(), "fashion", train, EPOCHS["mnist"], settings.track)
    return Fitted(model, train, held_out, test), 2000, 2000


def _cifar(settings: Settings) -> tuple[Fitted, int, int]:
    problem = load("cifar", 100)
    model = trained(problem, 0, 0.0, "full", EPOCHS["cifar"], settings.track)
    pixels, targets = cifar_images("cifar10", "test_batch")
    return Fitted(model, problem.train, problem.held_out, (normalise(pixels), targets)), 2000, 2000


def _cifar100(settings: Settings) -> tuple[Fitted, int, int]:
    """Of 10,000 photos of 100 classes, 5,000 train: a poor network, whose guarantees must hold all the same."""
    pixels, classes = cifar_images("cifar100", "test")
    order = torch.as_tensor(np.random.default_rng(0).permutation(len(pixels)))
    inputs, targets = normalise(pixels)[order], classes[order]
    parts = (torch.split(part, [5000, 2000, 3000]) for part in (inputs, targets))
    train_part, held_out, test = zip(*parts, strict=True)
    epochs = settings.choose(CIFAR100_EPOCHS, 1)
    torch.manual_seed(0)
    name = f"guarantees-cifar100-{epochs}"
    model = trained_on(name, PhotoNetwork(classes=100), "cifar", train_part, epochs, settings.track)
    return Fitted(model, train_part, held_out, test), 1500, 1500


def _digits(settings: Settings) -> tuple[Fitted, int, int]:
    """800 examples train a perceptron of 64 and 32 units, 300 are held out."""
    images, classes = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(images))
    inputs, targets = torch.as_tensor(images[order] / 16).float(), torch.as_tensor(classes[order]).long()
    train, held_out, test = zip(*(torch.split(part, [800, 300, 697]) for part in (inputs, targets)), strict=True)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10))
    optimiser = torch.optim.AdamW(model.parameters(), 0.003, weight_decay=0.01)
    for _ in range(settings.choose(DIGITS_STEPS, 100)):
        rows = torch.randint(0, len(train[0]), (64,))
        optimiser.zero_grad()
        F.cross_entropy(model(train[0][rows]), train[1][rows]).backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    return Fitted(model, train, held_out, test), 300, 300


def _wine(_: Settings) -> tuple[Fitted, int]:
    """Red wine: 1,599 examples, of which 800 train."""
    x, y = uci.table("wine")
    order = np.random.default_rng(0).permutation(len(x))
    return _regression(x[order], y[order], WINE_DECAY, 200), 300


def _heavy_tailed(settings: Settings) -> tuple[Fitted, int]:
    """y = sin(2 x) + 0.3 t, t from Student's distribution with three degrees of freedom; half of it trains."""
    rng = np.random.default_rng(0)
    x = rng.uniform(-3, 3, (settings.choose(TOY_EXAMPLES, 1000), 1))
    y = np.sin(2 * x) + 0.3 * rng.standard_t(FREEDOM, x.shape)
    return _regression(x, y, TOY_DECAY, len(x) // 6), len(x) // 6


def _regression(x: Array, y: Array, weight_decay: float, held_out: int) -> Fitted:
    """A perceptron of 2 x 50 units on the first half of the examples, by which all are standardised."""
    half = (len(x) + 1) // 2
    x, y = ((values - values[:half].mean(0)) / values[:half].std(0) for values in (x, y))
    model = _perceptron(x[:half], y[:half], weight_decay).eval()
    sizes = [half, held_out, len(x) - half - held_out]
    train, kept, test = zip(*(torch.split(torch.as_tensor(v).float(), sizes) for v in (x, y)), strict=True)
    return Fitted(model, train, kept, test)


def _perceptron(x: Array, y: Array, weight_decay: float) -> nn.Module:
    """Adam with one cycle of the learning rate on mean squared error + weight_decay * |w|^2."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(x.shape[1], WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 1)
    )
    inputs, targets = torch.as_tensor(x).float(), torch.as_tensor(y).float()
    optimiser = torch.optim.Adam(model.parameters(), LEARNING_RATE)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, LEARNING_RATE, total_steps=STEPS)
    for _ in range(STEPS):
        rows = torch.randint(0, len(x), (128,))
        optimiser.zero_grad()
        penalty = torch.stack([p.square().sum() for p in model.parameters()]).sum()
        loss = (model(inputs[rows]) - targets[rows]).square().mean() + weight_decay * penalty
        loss.backward()
        optimiser.step()
        schedule.step()
    return model


CLASSES: dict[str, Callable[[Settings], tuple[Fitted, int, int]]] = {
    "MNIST": _mnist,
    "Fashion-MNIST": _fashion,
    "CIFAR-10": _cifar,
    "CIFAR-100": _cifar100,
    "digits": _digits,
}
VALUES: dict[str, Callable[[Settings], tuple[Fitted, int]]] = {"wine": _wine, "heavy-tailed": _heavy_tailed}
