"""A table: rows of numbers, one class each.

    demur fit NAME.py --out bundles/table

Replace the data and the network by yours; everything else is optional. For real values in place of classes, give
FitConfig(likelihood="regression"); targets of 0 and 1 for each output are labels, of which a row may have several.
"""

import numpy as np
import torch
from torch import nn

from demur import FitConfig

config = FitConfig(name="table", seed=0)  # docs/fitting.md lists every option
class_names = ["low", "high"]


def rows(count: int, seed: int):
    """X and y. With pandas: `frame[columns]`, `frame["target"]`; the columns' names then are the features' names."""
    draw = np.random.default_rng(seed)
    x = draw.normal(size=(count, 5)).astype(np.float32)
    y = (x[:, 0] + x[:, 1] * x[:, 2] + 0.5 * draw.normal(size=count) > 0).astype(np.int64)
    return x, y


def train_data():
    """What the network was trained on."""
    return rows(2000, seed=0)


def calibration_data():
    """Like what will be served, and not used in training: it tunes, and sets the reject threshold."""
    return rows(1000, seed=1)


def test_data():
    """For `demur evaluate`; leave it out if you have none."""
    return rows(1000, seed=2)


def foreign_data():
    """What should be rejected: the fit and `demur evaluate` say whether it is. Leave it out if you have none."""
    x, y = rows(200, seed=3)
    return 5 * x, y


def model():
    """The trained network. One that is trained elsewhere: build it, then
    `network.load_state_dict(torch.load("weights.pt", weights_only=True))`."""
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(5, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 2))
    x, y = map(torch.as_tensor, train_data())
    optimiser = torch.optim.Adam(network.parameters(), 1e-3)
    for _ in range(200):
        optimiser.zero_grad()
        nn.functional.cross_entropy(network(x), y).backward()
        optimiser.step()
    return network.eval()
