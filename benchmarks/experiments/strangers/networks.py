"""An ordinary network for each of the data sets, trained in the ordinary way."""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.experiments.strangers.data import ALPHABET, Examples

BATCH, LEARNING_RATE, WEIGHT_DECAY = 64, 1e-3, 1e-4


class Standardised(nn.Module):
    """(x - mean) / deviation of the training rows."""

    mean: Tensor
    deviation: Tensor

    def __init__(self, x: Tensor) -> None:
        super().__init__()
        self.register_buffer("mean", x.mean(0))
        self.register_buffer("deviation", x.std(0))

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = (x - self.mean) / self.deviation
        return found


class LastState(nn.Module):
    """A recurrent network's output after the last step."""

    def __init__(self, inputs: int, width: int) -> None:
        super().__init__()
        self.recurrent = nn.GRU(inputs, width, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        steps: Tensor = self.recurrent(x)[0]
        return steps[:, -1]


class Highest(nn.Module):
    """The maximum over the steps of convolved letters."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.letters = nn.Embedding(ALPHABET, 16)
        self.convolution = nn.Conv1d(16, width, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.convolution(self.letters(x).transpose(1, 2))).amax(2)


def table(x: Tensor, classes: int) -> nn.Module:
    """Standardised columns, two hidden layers of 64 units."""
    layers = [nn.Linear(x.shape[1], 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, classes)]
    return nn.Sequential(Standardised(x), *layers)


def series(x: Tensor, classes: int) -> nn.Module:
    """A GRU of 64 units."""
    return nn.Sequential(LastState(x.shape[2], 64), nn.Linear(64, classes))


def text(_: Tensor, classes: int) -> nn.Module:
    """Embedding, convolution, a hidden layer with dropout."""
    return nn.Sequential(Highest(128), nn.Linear(128, 64), nn.ReLU(), nn.Dropout(0.2), nn.Linear(64, classes))


def small_images(x: Tensor, classes: int) -> nn.Module:
    """Two convolutions and a hidden layer."""
    left = (x.shape[2] // 4) * (x.shape[3] // 4)
    return nn.Sequential(
        *(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Flatten(), nn.Linear(32 * left, 64), nn.ReLU(), nn.Linear(64, classes)),
    )


def normalised_images(_: Tensor, classes: int) -> nn.Module:
    """Three convolutions with batch normalisation, and the mean over the image."""
    layers: list[nn.Module] = []
    for before, after in ((1, 16), (16, 32), (32, 64)):
        layers += [nn.Conv2d(before, after, 3, padding=1), nn.BatchNorm2d(after), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, classes))


# Data set -> network and passes over the training data.
NETWORKS: dict[str, tuple[Callable[[Tensor, int], nn.Module], int]] = {
    "fair": (table, 20),
    "penguins": (table, 100),
    "vowels": (series, 60),
    "words": (text, 15),
    "faces": (small_images, 40),
    "textures": (normalised_images, 25),
    "events-1": (table, 5),
    "events-0.3": (table, 5),
}


def trained(name: str, examples: Examples, seed: int, passes: int | None = None) -> nn.Module:
    """The data set's network, by Adam; in eval mode."""
    torch.manual_seed(seed)
    x, y = examples
    make, usual = NETWORKS[name]
    model = make(x, int(y.max()) + 1).train()
    optimiser = torch.optim.Adam(model.parameters(), LEARNING_RATE, weight_decay=WEIGHT_DECAY)
    for _ in range(passes or usual):
        for rows in torch.split(torch.randperm(len(x)), BATCH):
            if len(rows) > 1:  # batch normalisation
                optimiser.zero_grad()
                F.cross_entropy(model(x[rows]), y[rows]).backward()  # type: ignore[no-untyped-call]
                optimiser.step()
    return model.eval()
