"""Images: one class each.

    demur fit NAME.py --out bundles/images

Replace the data and the network by yours; everything else is optional.
"""

import numpy as np
import torch
from torch import nn

from demur import FitConfig, ImagePreprocessing, InputSpec

SIZE = 16
config = FitConfig(name="images", seed=0)  # docs/fitting.md lists every option
class_names = ["horizontal", "vertical"]
# How the service makes inputs of PNG, JPEG and WebP files: `(pixel * scale - mean) / std`, as for training.
input_spec = InputSpec(
    shape=(1, SIZE, SIZE), image=ImagePreprocessing(mode="L", scale=1 / 255, mean=(0.5,), std=(0.25,))
)


def pictures(count: int, seed: int):
    """Images (n, channels, height, width) and class numbers. A `DataLoader` or a dataset does as well."""
    draw = np.random.default_rng(seed)
    y = draw.integers(0, 2, count)
    waves = np.sin(np.arange(SIZE) * draw.uniform(0.5, 1.5, (count, 1)) + draw.uniform(0, 6, (count, 1)))
    flat = np.broadcast_to(waves[:, :, None], (count, SIZE, SIZE))
    images = np.where(y[:, None, None] == 0, flat, flat.transpose(0, 2, 1))[:, None]
    return (images + 0.5 * draw.normal(size=images.shape)).astype(np.float32), y


def train_data():
    """What the network was trained on."""
    return pictures(1000, seed=0)


def calibration_data():
    """Like what will be served, and not used in training: it tunes, and sets the reject threshold."""
    return pictures(600, seed=1)


def test_data():
    """For `demur evaluate`; leave it out if you have none."""
    return pictures(500, seed=2)


def foreign_data():
    """What should be rejected: the fit and `demur evaluate` say whether it is. Leave it out if you have none."""
    return np.zeros((50, 1, SIZE, SIZE), np.float32), np.zeros(50, np.int64)


def model():
    """The trained network. One that is trained elsewhere: build it, then
    `network.load_state_dict(torch.load("weights.pt", weights_only=True))`."""
    torch.manual_seed(0)
    network = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 16, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(16 * SIZE * SIZE // 4, 2),
    )
    x, y = map(torch.as_tensor, train_data())
    optimiser = torch.optim.Adam(network.parameters(), 1e-3)
    for _ in range(30):
        optimiser.zero_grad()
        nn.functional.cross_entropy(network(x), y).backward()
        optimiser.step()
    return network.eval()
