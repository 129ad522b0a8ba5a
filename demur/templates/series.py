"""Series: a real value that follows from measurements over time.

    demur fit NAME.py --out bundles/series

Replace the data and the network by yours; everything else is optional. For classes in place of values, leave out
`likelihood`.
"""

import numpy as np
import torch
from torch import nn

from demur import FitConfig

CHANNELS, STEPS = 2, 48
config = FitConfig(name="series", likelihood="regression", seed=0)  # docs/fitting.md lists every option
class_names = ["next"]  # the names of the values


def series(count: int, seed: int):
    """Series (n, channels, steps) and values (n, 1). A `DataLoader` or a dataset does as well."""
    draw = np.random.default_rng(seed)
    phase, speed = draw.uniform(0, 6, (count, 1)), draw.uniform(0.1, 0.4, (count, 1))
    angle = phase + speed * np.arange(STEPS + 1)
    x = np.stack([np.sin(angle), np.cos(angle)], axis=1) + 0.1 * draw.normal(size=(count, CHANNELS, STEPS + 1))
    return x[:, :, :STEPS].astype(np.float32), x[:, 0, STEPS:].astype(np.float32)


def train_data():
    """What the network was trained on."""
    return series(1500, seed=0)


def calibration_data():
    """Like what will be served, and not used in training: it tunes, and sets the reject threshold."""
    return series(800, seed=1)


def test_data():
    """For `demur evaluate`; leave it out if you have none."""
    return series(500, seed=2)


def foreign_data():
    """What should be rejected: the fit and `demur evaluate` say whether it is. Leave it out if you have none."""
    x, y = series(200, seed=3)
    return 5 * x, y


def model():
    """The trained network. One that is trained elsewhere: build it, then
    `network.load_state_dict(torch.load("weights.pt", weights_only=True))`."""
    torch.manual_seed(0)
    network = nn.Sequential(
        nn.Conv1d(CHANNELS, 16, 5, padding=2),
        nn.ReLU(),
        nn.Conv1d(16, 16, 5, stride=2, padding=2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(16 * STEPS // 2, 1),
    )
    x, y = map(torch.as_tensor, train_data())
    optimiser = torch.optim.Adam(network.parameters(), 1e-3)
    for _ in range(150):
        optimiser.zero_grad()
        nn.functional.mse_loss(network(x), y).backward()
        optimiser.step()
    return network.eval()
