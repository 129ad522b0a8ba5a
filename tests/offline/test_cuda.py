"""The numerical stages on a device that is not there: fake tensors know where they are, and refuse mixes of devices.

What depends on the data (the trial of a plan, NumPy) has no fake form: plans are made on the CPU and moved. Where there
is a device, every strategy chooses on it, and a whole fit runs on it.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    FakeTensor,
    FakeTensorDeviceMismatchError,
    FakeTensorMode,
)

from benchmarks.fit.networks.zoo import network_spec
from demur.offline.config import FitConfig, StrategyName
from demur.offline.data.held_out import HeldOut
from demur.offline.data.likelihood import Regression, likelihood_of
from demur.offline.features.mistakes import LEAST_EXAMPLES, possible_mistakes
from demur.offline.fit import fit_bundle
from demur.offline.jacobian.jacobian import SubnetworkJacobian
from demur.offline.jacobian.plan import make_jacobian
from demur.offline.laplace.ggn import Gram, add_curvature, write_root
from demur.offline.laplace.noise import likeliest_noise
from demur.offline.laplace.posterior import Spectrum
from demur.offline.laplace.prior import sweep_log_likelihood
from demur.offline.network.model_copy import private_copy
from demur.offline.network.weights import WeightLayout
from demur.offline.runtime.progress import silent
from demur.offline.selection.context import SelectionContext, largest
from demur.offline.selection.registry import STRATEGIES, select
from demur.offline.selection.subnetwork import Subnetwork
from demur.service import Predictor
from demur.service.format.manifest import Task
from tests.support.networks import build
from tests.support.selections import CASE, OPTIONS, case_context

# Autograd asks the device for its stream, and ends the process where torch was built without cuda. "meta" has one: a
# fake tensor that is there mixes with one of the CPU as little.
DEVICE = "cuda" if torch.backends.cuda.is_built() else "meta"
NEEDS_DEVICE = pytest.mark.skipif(not torch.cuda.is_available(), reason="no cuda device here")
LAST_LAYER = {"cnn-classification-10": 250, "batchnorm-cnn-regression-2": 34}  # its weights: as many are chosen
CLOSE = 1e-3  # far above the rounding of float32, far below what another network would give
Chosen = tuple[Subnetwork, list[np.ndarray]]
# Parameters of the generic route, too.
TESTED = ("groups-few", "residual", "scaled", "transposed", "attention", "tied")


def on_cuda(value: Any) -> Any:
    """Every tensor in a plan as a fake one on the device."""
    if isinstance(value, Tensor):
        return torch.empty(value.shape, dtype=value.dtype, device=DEVICE)
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{field.name: on_cuda(getattr(value, field.name)) for field in fields(value)})
    if isinstance(value, tuple):
        return tuple(map(on_cuda, value))
    return {key: on_cuda(item) for key, item in value.items()} if isinstance(value, dict) else value


def move(model: nn.Module) -> None:
    """Parameters and buffers to the device; tied ones stay tied."""
    moved: dict[int, Tensor] = {}
    for module in model.modules():
        parameters = module.named_parameters(recurse=False, remove_duplicate=False)
        buffers = module.named_buffers(recurse=False, remove_duplicate=False)
        for name, tensor in (*parameters, *buffers):
            setattr(module, name, moved.setdefault(id(tensor), _like(tensor)))


def _like(tensor: Tensor) -> Tensor:
    fake = on_cuda(tensor)
    return nn.Parameter(fake, requires_grad=False) if isinstance(tensor, nn.Parameter) else fake


def planned(name: str) -> tuple[SubnetworkJacobian, Tensor]:
    """On the CPU, and real."""
    network, inputs, indices = build(name)
    layout = WeightLayout.of(network)
    return make_jacobian(private_copy(network, torch.device("cpu")), layout, indices, inputs), inputs


@contextmanager
def moved(made: SubnetworkJacobian, inputs: Tensor) -> Iterator[tuple[SubnetworkJacobian, Tensor]]:
    """The same Jacobian and inputs on the device, where real tensors are refused."""
    with FakeTensorMode(allow_non_fake_inputs=False):
        move(made.model)
        yield (
            SubnetworkJacobian(made.model, made.layout, on_cuda(made.indices), on_cuda(made.plan)),
            on_cuda(inputs),
        )


def test_a_mix_of_devices_is_refused() -> None:
    """What every test here rests on."""
    with FakeTensorMode(), pytest.raises(FakeTensorDeviceMismatchError):
        torch.empty(3, device=DEVICE) + torch.empty(3)


@pytest.mark.parametrize("name", TESTED)
def test_the_jacobian_stays_on_the_device(name: str) -> None:
    made, cpu_inputs = planned(name)
    with moved(made, cpu_inputs) as (jacobian, inputs):
        mean, found = jacobian(inputs)
        assert mean.device.type == found.device.type == DEVICE
        assert found.shape == (*mean.shape, made.size)


@pytest.mark.parametrize("task", ["classification", "regression"])
@pytest.mark.parametrize("name", TESTED)
def test_curvature_and_scores_stay_on_the_device(name: str, task: Task) -> None:
    made, cpu_inputs = planned(name)
    with moved(made, cpu_inputs) as (jacobian, inputs):
        outputs = jacobian(inputs)[0].shape[1]
        likelihood, rows = likelihood_of(task, outputs), len(inputs) * outputs
        gram = Gram(made.size, rows, jacobian.indices.device)
        mean = write_root(jacobian, inputs, likelihood, gram.reserve(rows))
        assert mean.device.type == gram.finish().device.type == DEVICE
        sums = torch.zeros(made.size, dtype=torch.float64, device=DEVICE)
        add_curvature(jacobian, inputs, likelihood, sums)


@pytest.mark.parametrize("shape", [(3, 8, 8), (5,)])
def test_mistakes_stay_on_the_device(shape: tuple[int, ...]) -> None:
    with FakeTensorMode(allow_non_fake_inputs=True):
        x = torch.empty(LEAST_EXAMPLES, *shape, device=DEVICE)
        for number, (name, mistake) in enumerate(possible_mistakes(x, None).items()):
            try:
                found = mistake(x, torch.Generator().manual_seed(number))
            except DataDependentOutputException:  # a value is asked for: up to there, no mix
                continue
            assert found.device.type == DEVICE, name


@pytest.fixture
def zeros_in_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    """NumPy gets zeros for a fake tensor, which must have come back to the CPU."""

    def zeros(tensor: Tensor) -> np.ndarray:
        assert tensor.device.type == "cpu"
        return np.zeros(tuple(tensor.shape), np.float64 if tensor.is_floating_point() else np.int64)

    monkeypatch.setattr(FakeTensor, "numpy", zeros, raising=False)


@pytest.mark.usefixtures("zeros_in_numpy")
@pytest.mark.parametrize("task", ["classification", "regression"])
def test_the_searches_take_jacobians_from_the_device(task: Task) -> None:
    """The prior precision, and the noise of a regression: the curvature came back to the CPU before."""
    made, cpu_inputs = planned("residual")
    with moved(made, cpu_inputs) as (jacobian, inputs):
        outputs = jacobian(inputs)[0].shape[1]
        shape, dtype = ((), torch.int64) if task == "classification" else ((outputs,), torch.float32)
        held_out = HeldOut(inputs, torch.empty(len(inputs), *shape, dtype=dtype, device=DEVICE))
        spectrum = Spectrum.of(torch.empty(made.size, made.size, dtype=torch.float64))
        likelihood = likelihood_of(task, outputs, sigma_noise=1.0)
        scores = sweep_log_likelihood(jacobian, spectrum, held_out, np.array([1.0, np.inf]), likelihood, silent)
        assert scores.shape == (2,)
        assert np.isfinite(scores).all()
        if task == "regression":
            assert likeliest_noise(jacobian, spectrum, 1.0, held_out, Regression(outputs, 1.0), silent) > 0


def given(name: str, device: torch.device) -> SelectionContext:
    """A small network on a device, and its training data."""
    return case_context(CASE[name], LAST_LAYER[name], device=device)


@contextmanager
def noted() -> Iterator[list[np.ndarray]]:
    """What is chosen by: scores of weights."""
    seen: list[np.ndarray] = []

    def by_scores(scores: np.ndarray, size: int) -> Tensor:
        seen.append(scores)
        return largest(scores, size)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("demur.offline.selection.context.largest", by_scores)
        yield seen


def chosen(strategy: str, made: SelectionContext) -> Chosen:
    size = len(made.candidate_weights) if strategy == "all" else made.size
    with noted() as numbers:
        return select(strategy, replace(made, size=size), OPTIONS.get(strategy, {})), numbers


def assert_as_good(found: Chosen, expected: Chosen) -> None:
    """The same weights, or others by numbers that are the same but for rounding, as where two weights tie."""
    (subnetwork, numbers), (reference, reference_numbers) = found, expected
    assert subnetwork.indices.device.type == "cpu"
    if torch.equal(subnetwork.indices, reference.indices):
        return
    assert numbers, "nothing here depends on rounding"
    for one, other in zip(numbers, reference_numbers, strict=True):
        np.testing.assert_allclose(one, other, rtol=CLOSE, atol=CLOSE * float(np.sqrt(np.mean(other**2))))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=NEEDS_DEVICE)])
@pytest.mark.parametrize("name", LAST_LAYER)
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_strategy_chooses_on_a_device_as_on_the_cpu(
    strategy: str, name: str, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the CPU once more, so that the comparison itself is tried where there is no device."""
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)  # convolutions would keep 10 bits of 23
    expected = chosen(strategy, given(name, torch.device("cpu")))
    assert_as_good(chosen(strategy, given(name, torch.device(device))), expected)


@NEEDS_DEVICE
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("selection", ["wasserstein-swag", "wasserstein-laplace", "auto"])
def test_a_whole_fit_on_a_device_equals_one_on_the_cpu(selection: StrategyName, tmp_path: Path) -> None:
    network = network_spec("small-cnn", "miniature")
    inputs, targets = network.data(80)
    batches = list(zip(inputs.split(20), targets.split(20), strict=True))
    answers = []
    for device in ("cpu", "cuda"):
        config = FitConfig(subnetwork_size=30, selection=selection, device=device, seed=1)
        folder = tmp_path / device
        fit_bundle(network.model(), batches[:2], folder, calibration_loader=batches[2:], config=config)
        answers.append(Predictor.load(folder).predict(inputs[:5].numpy()))
    np.testing.assert_allclose(answers[1].mean, answers[0].mean, rtol=1e-4, atol=1e-5)


class Categories(nn.Module):
    """Numbers, and the numbers of categories."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.layer = nn.Embedding(5, 3), nn.Linear(7, 3)

    def forward(self, numbers: Tensor, category: Tensor) -> Tensor:
        return self.layer(torch.cat([numbers, self.table(category)], dim=1))


@NEEDS_DEVICE
@pytest.mark.filterwarnings("ignore")
def test_a_network_that_looks_values_up_is_fitted_on_a_device(tmp_path: Path) -> None:
    """Inputs made up by a fit are beyond the table: on the device itself, none could be computed after them."""
    generator = torch.Generator().manual_seed(0)
    numbers, category = torch.randn(80, 4, generator=generator), torch.arange(80) % 5
    inputs = {"numbers": numbers.numpy(), "category": category.numpy()}
    data = inputs, category % 3
    torch.manual_seed(0)
    model, answers = Categories(), []
    for device in ("cpu", "cuda"):
        config = FitConfig(subnetwork_size=20, device=device, false_reject_rate=0.2)
        fit_bundle(model, data, tmp_path / device, calibration_loader=data, config=config)
        answers.append(Predictor.load(tmp_path / device).predict(inputs))
    np.testing.assert_allclose(answers[1].mean, answers[0].mean, rtol=1e-4, atol=1e-5)
