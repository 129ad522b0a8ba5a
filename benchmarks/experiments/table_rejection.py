"""What default bundles of tables reject: small networks on scikit-learn's breast cancer and wine data.

Columns are standardised before the network, or inside it, so that its inputs are raw measurements; obvious foreigners
are made of test rows as the network sees them. A row is rejected at 5 % (`FitConfig.false_reject_rate`).
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from sklearn.datasets import load_breast_cancer, load_wine
from sklearn.model_selection import train_test_split
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.core.settings import Settings, Values
from benchmarks.experiments.kept import run_once
from probity.offline.config import FitConfig
from probity.offline.data.foreigners import obvious_foreigners
from probity.offline.data.likelihood import class_log_likelihood
from probity.offline.evaluation.diagnostics import expected_calibration_error
from probity.offline.fit import fit_bundle
from probity.service.inference.predictor import Predictor

Array = npt.NDArray[Any]
DATA: dict[str, Callable[..., tuple[Array, Array]]] = {"cancer": load_breast_cancer, "wine": load_wine}
KINDS = ("standardised", "raw")
SEEDS, STEPS, WIDTH = 3, 400, 50


@dataclass(frozen=True)
class Split:
    """Rows and classes to train, to hold out and to test: a half, a quarter and a quarter, drawn by the seed."""

    train: tuple[Tensor, Tensor]
    held_out: tuple[Tensor, Tensor]
    test: tuple[Tensor, Tensor]


class Standardised(nn.Module):
    """(x - mean) / deviation."""

    mean: Tensor
    deviation: Tensor

    def __init__(self, x: Tensor) -> None:
        super().__init__()
        self.register_buffer("mean", x.mean(0))
        self.register_buffer("deviation", x.std(0))

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = (x - self.mean) / self.deviation
        return found


def split(name: str, kind: str, seed: int) -> Split:
    """One of `DATA`, standardised by the training rows or raw."""
    x, y = DATA[name](return_X_y=True)
    train, rest = train_test_split(np.arange(len(y)), test_size=0.5, random_state=seed, stratify=y)
    held_out, test = train_test_split(rest, test_size=0.5, random_state=seed, stratify=y[rest])
    rows, classes = torch.as_tensor(x, dtype=torch.float32), torch.as_tensor(y)
    if kind == "standardised":
        rows = Standardised(rows[train])(rows)
    return Split(*((rows[some], classes[some]) for some in (train, held_out, test)))


def trained(data: Split, kind: str, seed: int, steps: int) -> nn.Module:
    """Two hidden layers of 50 units, in eval mode."""
    torch.manual_seed(seed)
    x, y = data.train
    layers = [nn.Linear(x.shape[1], WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU()]
    model = nn.Sequential(*layers, nn.Linear(WIDTH, int(y.max()) + 1))
    model = model if kind == "standardised" else nn.Sequential(Standardised(x), *model)
    optimiser = torch.optim.Adam(model.parameters(), 1e-3, weight_decay=1e-4)
    for _ in range(steps):
        optimiser.zero_grad()
        F.cross_entropy(model(x), y).backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    return model.eval()


def one(name: str, kind: str, seed: int, steps: int, scratch: Path) -> dict[str, Any]:
    """The plain network and its default bundle on test rows, and the share of each kind of foreigners rejected."""
    data = split(name, kind, seed)
    model, folder = trained(data, kind, seed, steps), scratch / f"{name}-{kind}-{seed}"
    config = FitConfig(seed=seed, measure_price=False)
    fit_bundle(model, [data.train], folder, calibration_loader=[data.held_out], config=config)
    predictor, (x, y) = Predictor.load(folder), data.test
    found = predictor.predict(x.numpy())
    assert found.probabilities is not None
    with torch.no_grad():
        plain = torch.softmax(model(x), 1).numpy()
    foreign = obvious_foreigners(x, 0)
    return {
        "data": name,
        "columns": kind,
        "seed": seed,
        "held_out": len(data.held_out[0]),
        "labels_differ": float((found.probabilities.argmax(1) != plain.argmax(1)).mean()),
        "plain": _quality(plain, y.numpy()),
        "bundle": _quality(found.probabilities, y.numpy()),
        "rejected": {"test rows": float(found.rejected.mean())}
        | {label: float(predictor.predict(rows.numpy()).rejected.mean()) for label, rows in foreign.items()},
    }


def _quality(probabilities: Array, classes: Array) -> dict[str, float]:
    return {
        "log_likelihood": float(class_log_likelihood(probabilities, classes).mean()),
        "ece": expected_calibration_error(probabilities, classes),
    }


def summarise(runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A row for each data set and kind of columns: means over the seeds."""
    found = []
    for name, kind in dict.fromkeys((run["data"], run["columns"]) for run in runs):
        own = [run for run in runs if (run["data"], run["columns"]) == (name, kind)]
        row: dict[str, Any] = {"data": name, "columns": kind, "seeds": len(own), "held_out": own[0]["held_out"]}
        for part in ("plain", "bundle", "rejected"):
            row[part] = {key: float(np.mean([run[part][key] for run in own])) for key in own[0][part]}
        found.append(row | {"labels_differ": float(np.mean([run["labels_differ"] for run in own]))})
    return found


def run(settings: Settings) -> Values:
    """`--rows cancer` fits one of the data sets; an interrupted run goes on where it stopped."""
    names, seeds = settings.names(tuple(DATA), tuple(DATA)), settings.choose(settings.seeds or SEEDS, 1)
    steps = settings.choose(STEPS, 20)
    runs = [
        run_once(
            f"table-rejection-{name}-{kind}-{seed}-{steps}",
            {"steps": steps, "width": WIDTH},
            partial(one, name, kind, seed, steps, settings.scratch),
        )
        for name in names
        for kind in KINDS
        for seed in range(seeds)
    ]
    return {"rows": summarise(runs), "runs": runs}
