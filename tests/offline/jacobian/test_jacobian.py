"""Structured and generic Jacobians of real networks, against one backward pass an example and an output."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from demur.offline.jacobian.find_head import find_head
from demur.offline.jacobian.jacobian import SubnetworkJacobian
from demur.offline.jacobian.layer_rules import ProductIndex
from demur.offline.jacobian.mixtures import Mixtures
from demur.offline.jacobian.plain import plain_jacobian
from demur.offline.jacobian.plan import CHECK_EXAMPLES, CHECK_OUTPUTS, make_jacobian
from demur.offline.jacobian.probes import ROWS_AT_ONCE, outputs_at_once, probe_gradients, probed_forward
from demur.offline.jacobian.routes import Chosen
from demur.offline.network.model_copy import private_copy
from demur.offline.network.weights import WeightLayout
from tests import reference
from tests.support.networks import NETWORKS, build, hooks_of

# torch warns of its own accord about kernels that vmap handles slowly, and about its LSTM outside of cuDNN.
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


def jacobian_of(name: str) -> tuple[SubnetworkJacobian, nn.Module, torch.Tensor, torch.Tensor]:
    network, inputs, indices = build(name)
    layout = WeightLayout.of(network)
    copied = private_copy(network, torch.device("cpu"))
    jacobian = make_jacobian(copied, layout, indices, inputs, find_head(copied, inputs))
    return jacobian, network, inputs, indices


@pytest.mark.parametrize("name", NETWORKS)
def test_equals_plain_differentiation(name: str) -> None:
    jacobian, network, inputs, indices = jacobian_of(name)
    mean, found = jacobian(inputs)
    true_mean, truth = reference.full_jacobian(network, inputs)
    expected = truth[:, :, indices.numpy()]
    np.testing.assert_allclose(mean.numpy(), true_mean, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-4, atol=1e-6 * np.abs(expected).max())


@pytest.mark.parametrize(
    ("name", "generic"),
    [
        ("called-twice", set()),
        ("shared-linears", set()),
        ("tied", set()),
        ("other-use", {"first.weight", "silent.weight", "silent.bias"}),
        ("time-major", {"inner.weight", "inner.bias"}),
        ("groups-all", set()),
        ("residual", set()),
        ("scaled", {"scale"}),
        (
            "derived",
            {f"mixed.{name}" for name in ("in_proj_weight", "in_proj_bias", "out_proj.weight", "out_proj.bias")}
            | {"doubled.weight", "doubled.bias"},
        ),
    ],
)
def test_route_of_each_parameter(name: str, generic: set[str]) -> None:
    """What its layer alone explains is structured; everything else takes the generic route."""
    jacobian, *_ = jacobian_of(name)
    assert {chosen.parameter.name for chosen in jacobian.plan.generic} == generic


@pytest.mark.parametrize("name", ["groups-few", "residual", "scaled", "tied"])
def test_an_example_alone_equals_its_row_of_a_batch(name: str) -> None:
    jacobian, _, inputs, _ = jacobian_of(name)
    _, together = jacobian(inputs)
    for i in range(len(inputs)):
        _, alone = jacobian(inputs[i : i + 1])
        torch.testing.assert_close(alone[0], together[i], rtol=1e-5, atol=1e-6)


def test_the_model_passed_in_is_not_touched() -> None:
    network, inputs, indices = build("residual")
    network.train()
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    jacobian = make_jacobian(private_copy(network, torch.device("cpu")), WeightLayout.of(network), indices, inputs)
    jacobian(inputs)
    assert network.training
    assert all(parameter.requires_grad and parameter.grad is None for parameter in network.parameters())
    assert all(torch.equal(tensor, before[name]) for name, tensor in network.state_dict().items())
    assert not any(hooks_of(network))
    assert not any(hooks_of(jacobian.model))


def test_layers_below_the_lowest_chosen_weight_are_not_differentiated() -> None:
    network = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 6), nn.Softmax(1), nn.Linear(6, 3))
    layout = WeightLayout.of(network)
    upper = torch.arange(layout.parameters[2].offset, layout.total)
    jacobian = make_jacobian(private_copy(network, torch.device("cpu")), layout, upper, torch.randn(2, 4))
    inputs = torch.randn(3, 4)
    jacobian(inputs)
    assert jacobian.plan.paths == ["2", "4"]
    assert not inputs.requires_grad


@pytest.mark.parametrize("positions", [1, 5])
@pytest.mark.parametrize("count", [1, 3, 20, 48])
def test_product_entries(count: int, positions: int) -> None:
    """Gathered, dense and single-position products against the triple loop."""
    generator = torch.Generator().manual_seed(count)
    a = torch.randn(2, 8, positions, generator=generator, dtype=torch.float64)
    g = torch.randn(2, 3, 6, positions, generator=generator, dtype=torch.float64)
    flat = torch.randperm(48, generator=generator)[:count].sort().values
    rows, outs = flat % 8, flat // 8
    index = ProductIndex.of(rows, outs)
    found = index.products(a[:, index.used_rows], g)
    for e in range(count):
        expected = (g[:, :, outs[e]] * a[:, None, rows[e]]).sum(-1)
        torch.testing.assert_close(found[:, :, e], expected)


def test_a_constant_model_has_zero_derivatives() -> None:
    class Constant(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.unused = nn.Linear(3, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.ones(len(x), 2)

    network = Constant()
    layout = WeightLayout.of(network)
    everything = torch.arange(layout.total)
    jacobian = make_jacobian(private_copy(network, torch.device("cpu")), layout, everything, torch.randn(2, 3))
    assert jacobian(torch.randn(4, 3))[1].abs().max() == 0


def test_the_trial_of_a_plan_leaves_the_network_as_it_was() -> None:
    """It is made in float64 and back; running statistics go there too."""
    model = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Linear(5, 3))
    network, before = private_copy(model, torch.device("cpu")), model.state_dict()
    make_jacobian(network, WeightLayout.of(model), torch.arange(20), torch.randn(2, 4))
    for name, tensor in network.state_dict().items():
        assert tensor.dtype == before[name].dtype
        assert torch.equal(tensor, before[name])
    assert all(not parameter.requires_grad and parameter.grad is None for parameter in network.parameters())


def test_the_trial_of_a_plan_costs_the_same_for_any_number_of_outputs(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a thousand classes, an exact backward pass for each of them would take longer than the job."""
    passes, backward = list[int](), torch.autograd.backward

    def counting(*arguments: Any, **options: Any) -> None:
        passes.append(1)
        backward(*arguments, **options)

    monkeypatch.setattr(torch.autograd, "backward", counting)
    for outputs in (2, 300):
        model = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, outputs))
        network = private_copy(model, torch.device("cpu"))
        jacobian = make_jacobian(network, WeightLayout.of(model), torch.arange(37), torch.randn(2, 4))
        assert not jacobian.plan.generic
    assert len(passes) == 2 * CHECK_EXAMPLES * CHECK_OUTPUTS


def test_derivatives_of_mixed_outputs_are_mixtures_of_derivatives() -> None:
    network, inputs, indices = build("residual")
    exact, layout = private_copy(network, torch.device("cpu"), torch.float64), WeightLayout.of(network)
    chosen = tuple(Chosen(parameter, positions) for parameter, positions in layout.locate(indices))
    every = plain_jacobian(exact, chosen, inputs.double())
    mixed = plain_jacobian(exact, chosen, inputs.double(), two_mixtures)
    coefficients = two_mixtures(exact(inputs.double())).coefficients
    torch.testing.assert_close(mixed, torch.einsum("bkn,bmk->bmn", every, coefficients))


def two_mixtures(mean: Tensor) -> Mixtures:
    coefficients = torch.randn(2, mean.shape[1], dtype=mean.dtype, generator=torch.Generator().manual_seed(1))
    return Mixtures(coefficients.expand(len(mean), -1, -1))


@given(batch=st.integers(1, 600), outputs=st.integers(1, 1200))
def test_outputs_go_backwards_together_up_to_a_number_of_rows(batch: int, outputs: int) -> None:
    at_once = outputs_at_once(batch, outputs)
    assert 1 <= at_once <= outputs
    assert at_once == 1 or batch * at_once <= ROWS_AT_ONCE + batch
    assert batch * outputs > ROWS_AT_ONCE or at_once == outputs


@pytest.mark.parametrize("at_once", [2, 3, 10])
@pytest.mark.parametrize("name", ["groups-few", "residual", "tied", "called-twice"])
def test_outputs_together_give_what_one_by_one_gives(name: str, at_once: int) -> None:
    jacobian, _, inputs, _ = jacobian_of(name)
    assert jacobian.plan.batched_outputs
    forward = probed_forward(jacobian.model, jacobian.plan, inputs)
    calls = forward.of(jacobian.plan.paths)
    together, one_by_one = (probe_gradients(forward.mean, calls, count) for count in (at_once, 1))
    for found, expected in zip(together, one_by_one, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["attention", "recurrent"])
@pytest.mark.filterwarnings("error::UserWarning")
def test_outputs_go_one_by_one_where_torch_would_do_so_anyway(name: str) -> None:
    """Fused attention and recurrent layers have no rule for several at once: torch would warn and take turns."""
    network, inputs, _ = build(name)
    head = torch.arange(WeightLayout.of(network).total - 3, WeightLayout.of(network).total)
    jacobian = make_jacobian(private_copy(network, torch.device("cpu")), WeightLayout.of(network), head, inputs)
    assert jacobian(inputs)[1].shape[2] == 3
