"""A model that cannot be exported, or names that it does not have, are refused before the work of hours."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from typer.testing import CliRunner

from demur.cli import app
from demur.offline import FitConfig, fit_bundle, trial
from demur.offline.data.given import Given
from demur.offline.export.errors import ExportError
from demur.offline.export.graph import export_jacobian
from demur.offline.fit import dry_run
from demur.offline.jacobian.plan import CHECK_OUTPUTS
from demur.offline.job import prepare
from demur.offline.network.unsupported import UnsupportedModelError
from demur.offline.runtime.distributed import DistributedContext
from demur.offline.runtime.progress import silent
from demur.offline.selection.select import reachable_weights
from demur.offline.trial import EXAMPLES, check_whole_way, weights_to_try
from demur.service.inference.onnx_runtime import onnxruntime
from demur.service.inference.predictor import Predictor
from tests.support.tiers import quick_among

CPU = torch.device("cpu")
DATA = [(torch.randn(40, 4, generator=torch.Generator().manual_seed(0)), torch.arange(40) % 2)]


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.body, self.middle, self.head = nn.Linear(4, 5), nn.Linear(5, 5), nn.Linear(5, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.tanh(self.middle(torch.tanh(self.body(x)))))


class Branching(Network):
    def forward(self, x: Tensor) -> Tensor:
        hidden = self.body(x)
        if hidden.abs().sum() > 0:
            hidden = 2 * hidden
        return self.head(hidden)


class OddOperation(Network):
    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.middle(torch.special.bessel_j0(self.body(x).detach()) + self.body(x)))


class OddGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x * 1

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient + 0 * torch.special.bessel_j1(ctx.saved_tensors[0])


class OddBackward(Network):
    """Can be exported, but not its derivatives in the weights below the odd place."""

    def forward(self, x: Tensor) -> Tensor:
        return self.head(OddGradient.apply(self.middle(self.body(x))))


class Mixing(Network):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x - x.mean(0, keepdim=True))


class Seen:
    """Descriptions of the stages that were begun."""

    def __init__(self) -> None:
        self.stages: list[str] = []

    def __call__(self, items: Iterable[Any], description: str, total: int | None = None) -> Iterable[Any]:
        self.stages.append(description)
        return items


def config(**changes: Any) -> FitConfig:
    return FitConfig(subnetwork_size=6, selection="wasserstein-laplace", device="cpu", prior_precision=1.0).model_copy(
        update=changes
    )


REFUSED = {
    "if": (Branching, ExportError, "depends on the values of its input.*torch.where.*other weights do not help"),
    "operation": (
        OddOperation,
        ExportError,
        "bessel_j0.*replace the operation in the model.*other weights do not help",
    ),
    "gradient": (OddBackward, ExportError, "bessel_j1.*weights of its last layer: selection='last-layer', or `within`"),
    "mixing": (Mixing, UnsupportedModelError, "depend on the other examples of its batch"),
}


@pytest.mark.parametrize("name", quick_among(REFUSED, {"gradient", "mixing"}))
def test_what_cannot_be_served_is_known_before_the_work(tmp_path: Path, name: str) -> None:
    network, error, message = REFUSED[name]
    seen = Seen()
    with pytest.raises(error, match=f"(?s){message}"):
        fit_bundle(network(), DATA, tmp_path / "out", calibration_loader=DATA, config=config(), progress=seen)
    assert seen.stages == ([] if error is UnsupportedModelError else ["Calibration data", "Trial export"])
    assert list(tmp_path.iterdir()) == []


def test_so_it_is_in_a_dry_run() -> None:
    with pytest.raises(ExportError, match="depends on the values of its input"):
        dry_run(Branching(), DATA, config(), calibration_loader=DATA)


def test_a_dry_run_checks_the_names_of_modules() -> None:
    with pytest.raises(ValueError, match=r"within: found 'haed', expected a module of the network such as head"):
        dry_run(Network(), DATA, config(within=("haed",)), calibration_loader=DATA)


def test_the_line_at_fault_is_shown(tmp_path: Path) -> None:
    (tmp_path / "recipe.py").write_text("""
import torch
from demur.offline import FitConfig
config = FitConfig(subnetwork_size=5, device="cpu")

class Branching(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 2)

    def forward(self, x):
        if x.max() > 0:
            return self.layer(x)
        return 2 * self.layer(x)

def model():
    return Branching()

def train_data():
    return torch.randn(40, 4), torch.arange(40) % 2

calibration_data = train_data
""")
    result = CliRunner().invoke(app, ["check", str(tmp_path / "recipe.py")])
    assert result.exit_code == 2, result.output
    assert result.stderr.startswith("error: the model could not be exported to ONNX: the forward of the model itself")
    assert "Could not guard on data-dependent" in result.stderr
    assert "recipe.py:12, in forward\n    if x.max() > 0:\n" in result.stderr
    assert "torch.where" in result.stderr
    assert result.stderr.count("\n") == 3


@pytest.mark.parametrize(
    ("changes", "parameters"),
    [
        ({}, {"body.weight", "body.bias", "middle.weight", "middle.bias", "head.weight", "head.bias"}),
        ({"within": ("middle",)}, {"middle.weight", "middle.bias"}),
        ({"selection": "last-layer", "subnetwork_size": 12}, {"head.weight", "head.bias"}),
        ({"selection": "all", "within": ("middle",), "subnetwork_size": 1000}, {"middle.weight", "middle.bias"}),
    ],
    ids=["all", "within", "last-layer", "all"],
)
def test_what_may_be_chosen_is_tried_two_weights_a_parameter(changes: dict[str, Any], parameters: set[str]) -> None:
    job = prepare(Network(), Given("train_loader", DATA), config(**changes), CPU, DistributedContext(), silent)
    tried = weights_to_try(job, reachable_weights(job))
    found = {parameter.name: len(positions) for parameter, positions in job.layout.locate(tried)}
    assert found == dict.fromkeys(parameters, 2)


def test_only_what_may_be_chosen_has_to_be_exportable() -> None:
    job = prepare(
        OddBackward(), Given("train_loader", DATA), config(within=("head",)), CPU, DistributedContext(), silent
    )
    state = torch.get_rng_state()
    check_whole_way(job, reachable_weights(job), DATA[0][0])
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("outputs", [2, 3, 1000])
def test_its_work_does_not_grow_with_the_number_of_outputs(monkeypatch: pytest.MonkeyPatch, outputs: int) -> None:
    """At most `CHECK_OUTPUTS` backward passes an example, in the graph and in torch."""
    network = Network()
    network.head = nn.Linear(5, outputs)
    targets = torch.arange(40) % outputs
    job = prepare(network, Given("train_loader", [(DATA[0][0], targets)]), config(), CPU, DistributedContext(), silent)
    exported, passes = list[bytes](), list[int]()
    backward = torch.autograd.backward

    def recorded(*arguments: Any) -> tuple[bytes, int]:
        exported.append(export_jacobian(*arguments)[0])
        return exported[-1], 0

    def counted(*arguments: Any, **options: Any) -> None:
        passes.append(1)
        backward(*arguments, **options)

    indices = weights_to_try(job, reachable_weights(job))
    monkeypatch.setattr(trial, "export_jacobian", recorded)
    monkeypatch.setattr(torch.autograd, "backward", counted)
    check_whole_way(job, reachable_weights(job), DATA[0][0])
    (graph,) = exported
    session = onnxruntime.InferenceSession(graph, providers=["CPUExecutionProvider"])
    found = session.run(["jacobian"], {"inputs": DATA[0][0].numpy()})[0]
    assert found.shape == (40, CHECK_OUTPUTS, len(indices))
    assert len(passes) <= 4 * EXAMPLES * CHECK_OUTPUTS


class Causal(nn.Module):
    """With a mask of its own, as hand-written transformers have it."""

    mask: Tensor

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.key, self.head = nn.Linear(3, 3), nn.Linear(3, 2)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(4))

    def forward(self, x: Tensor) -> Tensor:
        return self.head((torch.softmax(x @ self.key(x).transpose(1, 2) + self.mask, dim=2) @ x).mean(dim=1))


def test_a_mask_may_hide_what_comes_later(tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(0)
    data = [(torch.randn(60, 4, 3, generator=generator), torch.randint(0, 2, (60,), generator=generator))]
    network = Causal()
    path = fit_bundle(network, data, tmp_path / "bundle", calibration_loader=data, config=FitConfig(device="cpu"))
    with torch.no_grad():
        expected = network(data[0][0]).numpy()
    np.testing.assert_allclose(Predictor.load(path).predict(data[0][0].numpy()).mean, expected, rtol=1e-4, atol=1e-5)
