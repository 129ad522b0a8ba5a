"""Texts as numbers of words, all of one length: one class each.

    probity fit NAME.py --out bundles/text

Replace the data, the words and the network by yours; everything else is optional. The service takes the numbers, too:
turn texts into numbers in the same way before you ask.
"""

import numpy as np
import torch
from torch import nn

from probity import FitConfig

WORDS, LENGTH = 50, 12
config = FitConfig(name="text", seed=0)  # docs/fitting.md lists every option
class_names = ["complaint", "praise"]


class Classifier(nn.Module):
    """The mean of the words' vectors, and two layers."""

    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(WORDS, 16)
        self.head = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 2))

    def forward(self, tokens):
        return self.head(self.words(tokens).mean(1))


def texts(count: int, seed: int):
    """Numbers of words (n, length), int64, and class numbers. A `DataLoader` or a dataset does as well."""
    draw = np.random.default_rng(seed)
    y = draw.integers(0, 2, count)
    usual, telling = draw.integers(0, WORDS - 20, (count, LENGTH)), draw.integers(0, 10, (count, LENGTH))
    tokens = np.where(draw.uniform(size=usual.shape) < 0.3, WORDS - 20 + 10 * y[:, None] + telling, usual)
    return tokens.astype(np.int64), y


def train_data():
    """What the network was trained on."""
    return texts(2000, seed=0)


def calibration_data():
    """Like what will be served, and not used in training: it tunes, and sets the reject threshold."""
    return texts(800, seed=1)


def test_data():
    """For `probity evaluate`; leave it out if you have none."""
    return texts(500, seed=2)


def model():
    """The trained network. One that is trained elsewhere: build it, then
    `network.load_state_dict(torch.load("weights.pt", weights_only=True))`."""
    torch.manual_seed(0)
    network = Classifier()
    x, y = map(torch.as_tensor, train_data())
    optimiser = torch.optim.Adam(network.parameters(), 1e-2)
    for _ in range(100):
        optimiser.zero_grad()
        nn.functional.cross_entropy(network(x), y).backward()
        optimiser.step()
    return network.eval()
