"""A fit that takes no time: a small network with everything that a user's may have, its data, and its state."""

import functools
import random
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import demur.offline.fit
from demur.offline import FitConfig, fit_bundle
from demur.offline.job import Job
from demur.offline.publish.bundle import publish
from demur.offline.publish.exporter import Measured
from demur.offline.publish.fitted import Fitted
from demur.offline.section import Section
from tests.support.networks import hooks_of

CONFIG = FitConfig(
    subnetwork_size=6,
    selection="random",
    prior_precision=1.0,
    false_reject_rate=0.1,
    device="cpu",
    name="tiny",
)
Batches = list[tuple[Tensor, Tensor]]


class Stop(Exception):
    """Raised by a stage that a test replaced."""


def network() -> nn.Module:
    """In train mode, with dropout, BatchNorm, a frozen tensor, a gradient and hooks of the user's own."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(4, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Dropout(0.5), nn.Linear(5, 5), nn.Linear(5, 2)
    ).train()
    model.get_buffer("1.running_mean").copy_(torch.randn(5))
    model[3].eval()
    model[4].weight.requires_grad_(False)
    model[0].weight.grad = torch.ones(5, 4)
    model[0].register_forward_hook(lambda *_: None)
    model[5].register_forward_pre_hook(lambda *_: None)
    return model


def batches(count: int = 20, seed: int = 0, features: int = 4, classes: int = 2) -> Batches:
    generator = torch.Generator().manual_seed(seed)
    inputs = torch.randn(count, features, generator=generator)
    targets = torch.randint(0, classes, (count,), generator=generator)
    return list(zip(inputs.split(8), targets.split(8), strict=True))


def state(model: nn.Module) -> dict[str, Any]:
    """Everything of a model and of the random number generators that a fit could disturb, comparable with ==."""
    parameters = dict(model.named_parameters())
    modules = list(model.modules())
    return {
        "tensors": {name: (t.dtype, t.tolist()) for name, t in model.state_dict().items()},
        "identity": [id(p) for p in parameters.values()],
        "requires_grad": [p.requires_grad for p in parameters.values()],
        "grad": {name: None if p.grad is None else p.grad.tolist() for name, p in parameters.items()},
        "training": [m.training for m in modules],
        "hooks": hooks_of(model),
        "attributes": [sorted(vars(m)) for m in modules],
        "torch": torch.get_rng_state().tolist(),
        "numpy": str(np.random.get_state()),
        "python": random.getstate(),
        "grad mode": torch.is_grad_enabled(),
        "dtype": torch.get_default_dtype(),
    }


class StubExporter:
    """In place of the graph a word, of which nothing is measured: for fits whose graph nobody looks at."""

    def export(self, job: Job, fitted: Fitted) -> tuple[bytes, int]:
        return b"graph", 18

    def measure(self, job: Job, fitted: Fitted, folder: Path) -> Measured:
        return Measured(None, None, (), ())


def skip_export(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only what stands beside the export is tried here."""
    monkeypatch.setattr(demur.offline.fit, "check_whole_way", lambda *_: None)
    monkeypatch.setattr(demur.offline.fit, "publish", functools.partial(publish, exporter=StubExporter()))


class Captured(NamedTuple):
    fitted: Fitted
    said: Section


def captured(
    monkeypatch: pytest.MonkeyPatch, model: nn.Module, train: Any, held_out: Batches, config: FitConfig
) -> Captured:
    """What the steps found, and say of themselves; the fit stops there."""
    found: list[Captured] = []

    def publish(job: Job, fitted: Fitted, _: Path) -> None:
        found.append(Captured(fitted, Section.joined(fitted.sections(job))))
        raise Stop

    skip_export(monkeypatch)
    monkeypatch.setattr(demur.offline.fit, "publish", publish)
    with pytest.raises(Stop):
        fit_bundle(model, train, "never-written", calibration_loader=held_out, config=config)
    return found[0]
