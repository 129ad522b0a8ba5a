"""Handwritten digits (real scans, 8 x 8 pixels, shipped with scikit-learn): classification of images.

    demur fit examples/digits.py --out bundles/digits
    demur serve bundles/digits

To adapt it: return your own network from `model()` (one that is trained already is loaded there, with
`torch.load(..., weights_only=True)`), your data from the other functions, and describe your images in `input_spec`.
"""

import functools

import numpy as np
import torch
from rich.progress import track
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import Tensor, nn

from demur import FitConfig, ImagePreprocessing, InputSpec

SIZE = 8
# Which weights, and how much uncertainty, is decided on held-out digits and synthetic shifts of them: `selection` is
# "auto" by default, weights are added to the network (`added_weights`), and both together cost at most 0.004 nats
# (`uncertainty_budget`).
config = FitConfig(name="digits", subnetwork_size=500, seed=0)
class_names = [str(digit) for digit in range(10)]
input_spec = InputSpec(shape=(1, SIZE, SIZE), image=ImagePreprocessing(mode="L", scale=1 / 255, resize=True))

Data = tuple[Tensor, Tensor]


@functools.cache
def splits() -> tuple[Data, Data, Data]:
    """60 % to train, 20 % to calibrate, 20 % to test; pixels from 0 to 1, one channel."""
    digits = load_digits()
    images = torch.as_tensor(digits.images / 16, dtype=torch.float32).unsqueeze(1)
    labels = torch.as_tensor(digits.target, dtype=torch.int64)
    rows = np.arange(len(labels))
    train, rest = train_test_split(rows, test_size=0.4, random_state=0, stratify=digits.target)
    calibration, test = train_test_split(rest, test_size=0.5, random_state=0, stratify=digits.target[rest])
    first, second, third = ((images[part], labels[part]) for part in (train, calibration, test))
    return first, second, third


def train_data() -> Data:
    return splits()[0]


def calibration_data() -> Data:
    return splits()[1]


def test_data() -> Data:
    return splits()[2]


def foreign_data() -> Data:
    """What is no digit as this scanner sees them: test digits with black and white exchanged, and uniform noise."""
    images, _ = splits()[2]
    noise = torch.rand(len(images), 1, SIZE, SIZE, generator=torch.Generator().manual_seed(0))
    inputs = torch.cat([1 - images, noise])
    return inputs, torch.zeros(len(inputs), dtype=torch.int64)


def network() -> nn.Module:
    """Two convolutions and a linear layer."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(32 * (SIZE // 2) ** 2, 10),
    )


def model(epochs: int = 40) -> nn.Module:
    """Train the network on the training split (a few seconds)."""
    torch.manual_seed(0)
    net = network()
    inputs, targets = train_data()
    optimiser = torch.optim.AdamW(net.parameters(), lr=2e-3, weight_decay=1e-2)
    for _ in track(range(epochs), description="Training"):
        for rows in torch.randperm(len(inputs)).split(64):
            optimiser.zero_grad()
            nn.functional.cross_entropy(net(inputs[rows]), targets[rows]).backward()
            optimiser.step()
    return net
