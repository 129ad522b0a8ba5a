"""Disease progression from ten measurements (442 patients, shipped with scikit-learn): regression on a table.

    demur fit examples/diabetes.py --out bundles/diabetes
    demur serve bundles/diabetes

To adapt it: return your own table from `splits()`. The network standardises features and target itself, so clients
send and receive raw units; for several targets, widen the last layer and return targets of shape (n, K).
"""

import functools

import numpy as np
import torch
from rich.progress import track
from sklearn.datasets import load_diabetes
from sklearn.model_selection import train_test_split
from torch import Tensor, nn

from demur import FitConfig, InputSpec

FEATURES = ("age", "sex", "bmi", "blood_pressure", "s1", "s2", "s3", "s4", "s5", "s6")
config = FitConfig(name="diabetes", likelihood="regression", subnetwork_size=0.5, seed=0)
input_spec = InputSpec(shape=(len(FEATURES),), feature_names=FEATURES)

Data = tuple[Tensor, Tensor]


@functools.cache
def splits() -> tuple[Data, Data, Data]:
    """60 % to train, 20 % to calibrate, 20 % to test, in raw units."""
    table, target = load_diabetes(return_X_y=True, scaled=False)
    train, rest = train_test_split(np.arange(len(table)), test_size=0.4, random_state=0)
    calibration, test = train_test_split(rest, test_size=0.5, random_state=0)
    inputs = torch.as_tensor(table, dtype=torch.float32)
    targets = torch.as_tensor(target, dtype=torch.float32).unsqueeze(1)
    first, second, third = ((inputs[part], targets[part]) for part in (train, calibration, test))
    return first, second, third


def train_data() -> Data:
    return splits()[0]


def calibration_data() -> Data:
    return splits()[1]


def test_data() -> Data:
    return splits()[2]


def foreign_data() -> Data:
    """Patients with impossible measurements: every feature of a test patient doubled."""
    inputs, targets = splits()[2]
    return 2 * inputs, targets


class Affine(nn.Module):
    """x -> scale * x + shift with fixed numbers: no weights to be uncertain about."""

    scale: Tensor
    shift: Tensor

    def __init__(self, scale: Tensor, shift: Tensor) -> None:
        super().__init__()
        self.register_buffer("scale", scale)
        self.register_buffer("shift", shift)

    def forward(self, x: Tensor) -> Tensor:
        return self.scale * x + self.shift


def model(epochs: int = 300) -> nn.Module:
    """Train a small network on the training split (a few seconds)."""
    torch.manual_seed(0)
    inputs, targets = train_data()
    mean, std = inputs.mean(0), inputs.std(0)
    net = nn.Sequential(
        Affine(1 / std, -mean / std),
        nn.Linear(len(FEATURES), 32),
        nn.Tanh(),
        nn.Linear(32, 32),
        nn.Tanh(),
        nn.Linear(32, 1),
        Affine(targets.std(0), targets.mean(0)),
    )
    optimiser = torch.optim.AdamW(net.parameters(), lr=1e-3, weight_decay=1.0)
    for _ in track(range(epochs), description="Training"):
        for rows in torch.randperm(len(inputs)).split(64):
            optimiser.zero_grad()
            nn.functional.mse_loss(net(inputs[rows]) / targets.std(), targets[rows] / targets.std()).backward()
            optimiser.step()
    return net
