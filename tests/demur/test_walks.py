"""The walks of a new user: a recipe by the documentation alone, then fit, evaluate, predict, and ask the service.

Each network is trained in seconds on made-up data; what is served must know what the network knows, keep the rate of
rejections, and say no to inputs that are far away.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from demur import Predictor
from demur.cli import app
from demur.offline.recipes.load import load_recipe
from tests.support.client import serving

pytestmark = pytest.mark.slow
Json = dict[str, Any]

HEAD = """
import numpy as np
import pandas as pd
import torch
from torch import nn
from demur import FitConfig, ImagePreprocessing, InputSpec

def trained(network, loss, inputs, targets, steps=300, rate=1e-2):
    torch.manual_seed(0)
    for layer in network.modules():
        if hasattr(layer, "reset_parameters"):
            layer.reset_parameters()
    optimiser = torch.optim.Adam(network.parameters(), rate)
    for _ in range(steps):
        optimiser.zero_grad()
        loss(network(*inputs), targets).backward()
        optimiser.step()
    return network.eval()

def mlp(inputs, outputs):
    return nn.Sequential(nn.Linear(inputs, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, outputs))

def train_data():
    return rows(1500, 0)

def calibration_data():
    return rows(800, 1)

def test_data():
    return rows(800, 2)
"""
IMAGES = """
config = FitConfig(name="stripes")
class_names = ["horizontal", "vertical", "none"]
input_spec = InputSpec(shape=(3, 12, 12), image=ImagePreprocessing(mode="RGB", scale=1 / 255, resize=True))

def rows(count, seed):
    draw = np.random.default_rng(seed)
    y = draw.integers(0, 3, count)
    waves = 0.5 + 0.4 * np.sin(1.5 * np.arange(12) + draw.uniform(0, 6, (count, 1)))
    flat = np.broadcast_to(waves[:, :, None], (count, 12, 12))
    kinds = np.stack([flat, flat.transpose(0, 2, 1), np.full_like(flat, 0.5)], 1)
    x = kinds[np.arange(count), y][:, None] + 0.1 * draw.normal(size=(count, 3, 12, 12))
    return x.clip(0, 1).astype(np.float32), y

def model():
    x, y = map(torch.as_tensor, train_data())
    net = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(3), nn.Flatten(), nn.Linear(128, 3))
    return trained(net, nn.functional.cross_entropy, (x,), y, 60)
"""
REGRESSOR = """
config = FitConfig(likelihood="regression", name="rent")

def rows(count, seed):
    draw = np.random.default_rng(seed)
    x = draw.normal(size=(count, 6)).astype(np.float32)
    return x, 700 + 100 * x[:, 0] + 50 * np.sin(2 * x[:, 1]) + 20 * draw.normal(size=count)

class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = mlp(6, 1)
    def forward(self, x):
        return 700 + 100 * self.net(x).squeeze(1)

def model():
    x, y = map(torch.as_tensor, train_data())
    return trained(Scaled(), lambda f, t: ((f - t) / 100).square().mean(), (x,), y)
"""
TARGETS = """
config = FitConfig(likelihood="regression", name="body")
UNITS = np.array([1, 1000, 0.01])

def rows(count, seed):
    draw = np.random.default_rng(seed)
    x = draw.normal(size=(count, 5)).astype(np.float32)
    clean = np.stack([x[:, 0], np.sin(x[:, 1]) + x[:, 2], x[:, 3] * x[:, 4]], 1)
    y = UNITS * (clean + np.array([0.1, 0.3, 0.2]) * draw.normal(size=clean.shape))
    return x, pd.DataFrame(y, columns=["height", "income", "dose"])

class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = mlp(5, 3)
        self.register_buffer("units", torch.as_tensor(UNITS, dtype=torch.float32))
    def forward(self, x):
        return self.units * self.net(x)

def model():
    x, y = train_data()
    units = torch.as_tensor(UNITS, dtype=torch.float32)
    y = torch.tensor(y.to_numpy(), dtype=torch.float32)
    return trained(Scaled(), lambda f, t: ((f - t) / units).square().mean(), (torch.as_tensor(x),), y)
"""
ONE_LOGIT = """
config = FitConfig(name="churn")
class_names = ["stays", "leaves"]

def rows(count, seed):
    draw = np.random.default_rng(seed)
    x = draw.normal(size=(count, 4)).astype(np.float32)
    return x, (x[:, 0] - x[:, 1] + 0.5 * draw.normal(size=count) > 0).astype(np.float32)

def model():
    x, y = map(torch.as_tensor, train_data())
    loss = nn.BCEWithLogitsLoss()
    return trained(mlp(4, 1), lambda f, t: loss(f.squeeze(1), t), (x,), y)
"""
LABELS = """
config = FitConfig(name="tags")
class_names = ["red", "round", "large"]

def rows(count, seed):
    draw = np.random.default_rng(seed)
    x = draw.normal(size=(count, 6)).astype(np.float32)
    return x, (x[:, :3] + x[:, 3:] + 0.5 * draw.normal(size=(count, 3)) > 0).astype(np.float32)

def model():
    x, y = map(torch.as_tensor, train_data())
    return trained(mlp(6, 3), nn.BCEWithLogitsLoss(), (x,), y)
"""
FRAME = """
config = FitConfig(name="patients")
class_names = ["healthy", "ill"]
COLUMNS = ["age", "weight", "pressure"]

def rows(count, seed):
    draw = np.random.default_rng(seed)
    frame = pd.DataFrame(draw.normal(size=(count, 3)), columns=COLUMNS)
    ill = frame["age"] + frame["pressure"] ** 2 + 0.4 * draw.normal(size=count) > 1
    return frame, ill.astype(int)

def calibration_data():
    frame, ill = rows(800, 1)
    return frame[["pressure", "age", "weight"]].assign(patient=np.arange(800)), ill

def model():
    frame, ill = train_data()
    x, y = torch.tensor(frame.to_numpy(), dtype=torch.float32), torch.tensor(ill.to_numpy())
    return trained(mlp(3, 2), nn.functional.cross_entropy, (x,), y)
"""
INPUTS = """
config = FitConfig(name="visits")
class_names = ["returns", "leaves"]

def rows(count, seed):
    draw = np.random.default_rng(seed)
    pages, about = draw.integers(0, 20, (count, 4)), draw.normal(size=(count, 3)).astype(np.float32)
    y = (about[:, 0] + 0.2 * (pages % 2).sum(1) - 0.4 + 0.3 * draw.normal(size=count) > 0).astype(np.int64)
    return {"pages": pages, "about": about}, y

class Visits(nn.Module):
    def __init__(self):
        super().__init__()
        self.page, self.net = nn.Embedding(20, 8), mlp(11, 2)
    def forward(self, pages, about):
        return self.net(torch.cat([self.page(pages).mean(1), about], 1))

def model():
    given, y = train_data()
    pages, about = torch.as_tensor(given["pages"]), torch.as_tensor(given["about"])
    return trained(Visits(), nn.functional.cross_entropy, (pages, about), torch.as_tensor(y))
"""
TINY = """
config = FitConfig(name="tiny")

def rows(count, seed):
    draw = np.random.default_rng(seed)
    x = draw.normal(size=(count, 4)).astype(np.float32)
    return x, (np.abs(x[:, 0]) + x[:, 1] + 0.3 * draw.normal(size=count) > 0.5).astype(np.int64)

def model():
    x, y = map(torch.as_tensor, train_data())
    net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    return trained(net, nn.functional.cross_entropy, (x,), y)
"""


def as_list(x: Any) -> Any:
    return np.asarray(x)[:3].tolist()


@dataclass(frozen=True)
class Walk:
    """name: what a figure of `evaluate` is called, and the least or most that it may be. far: inputs far away from
    these; body: of a request with the first three examples."""

    recipe: str
    figure: str
    least: float
    most: float
    far: Callable[[Any], Any] = lambda x: 100 * np.asarray(x)
    body: Callable[[Any], Json] = lambda x: {"inputs": as_list(x)}


WALKS = {
    "image classifier": Walk(IMAGES, "accuracy", 0.95, 1, lambda x: np.zeros_like(x)),
    "regressor": Walk(REGRESSOR, "rmse", 15, 35),
    "three targets": Walk(TARGETS, "coverage_95", 0.9, 0.99),
    "one logit": Walk(ONE_LOGIT, "accuracy", 0.8, 0.95),
    "several labels": Walk(LABELS, "label_accuracy", 0.8, 0.95),
    "data frame": Walk(FRAME, "accuracy", 0.85, 1, lambda x: 100 * x, lambda x: {"inputs": x[:3].to_dict("records")}),
    "dict of inputs": Walk(
        INPUTS,
        "accuracy",
        0.85,
        1,
        lambda x: {"pages": x["pages"], "about": 100 * x["about"]},
        lambda x: {"inputs": {name: as_list(values) for name, values in x.items()}},
    ),
    "58 weights": Walk(TINY, "accuracy", 0.85, 1),
}


@pytest.mark.parametrize("walk", WALKS.values(), ids=WALKS)
def test_a_new_users_walk(walk: Walk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "recipe.py").write_text(HEAD + walk.recipe)
    fitted = CliRunner().invoke(app, ["fit", "recipe.py", "--out", "bundle"])
    assert fitted.exit_code == 0, fitted.output
    assert fitted.stdout.endswith("Serve it: demur serve bundle\n")

    measured = CliRunner().invoke(app, ["evaluate", "bundle", "recipe.py", "--json", "figures.json"])
    assert measured.exit_code == 0, measured.output
    figures = json.loads((tmp_path / "figures.json").read_text())["laplace"]
    assert walk.least <= figures[walk.figure]["value"] <= walk.most
    assert figures["false_reject_rate"]["value"] <= 0.09

    inputs, _ = load_recipe(tmp_path / "recipe.py").data("test_data")
    predictor = Predictor.load("bundle")
    usual, far = predictor.predict(inputs), predictor.predict(walk.far(inputs))
    assert far.rejected.mean() >= 0.9
    frame = usual.to_frame()
    assert len(frame) == len(usual) == 800

    with serving(predictor) as client:
        answer = client.predict(walk.body(inputs))
        assert answer.status_code == 200, answer.text
        found = answer.json()["predictions"]
    assert [one["rejected"] for one in found] == usual.rejected[:3].tolist()
    if usual.labels is not None:
        named = [tuple(one["labels"]) if "labels" in one else one["label"] for one in found]
        assert named == [tuple(label) if isinstance(label, tuple) else label for label in usual.labels[:3]]


def test_several_targets_and_labels_are_measured_one_by_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "recipe.py").write_text(HEAD + TARGETS)
    assert CliRunner().invoke(app, ["fit", "recipe.py", "--out", "bundle"]).exit_code == 0
    measured = CliRunner().invoke(app, ["evaluate", "bundle", "recipe.py", "--json", "figures.json"])
    each = json.loads((tmp_path / "figures.json").read_text())["by_output"]
    assert list(each) == ["height", "income", "dose"]
    sizes = [each[name]["laplace"]["rmse"]["value"] for name in each]
    assert 0.1 < sizes[0] < 0.2
    assert 300 < sizes[1] < 400
    assert 0.002 < sizes[2] < 0.004
    for name in each:
        assert f"\n{name}" in measured.stdout
