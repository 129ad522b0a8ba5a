"""Closed forms: weights of a linear head and of layers whose features reach it separately; others, backward passes."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from demur.offline.jacobian.find_head import find_head
from demur.offline.jacobian.jacobian import SubnetworkJacobian
from demur.offline.jacobian.linear_head import LinearHead
from demur.offline.jacobian.plan import make_jacobian
from demur.offline.network.model_copy import private_copy
from demur.offline.network.weights import WeightLayout
from tests import reference
from tests.support.heads import HEADS, Gated, ShuffledChannels, build_head


def jacobian_of(network: nn.Module, inputs: Tensor, indices: Tensor) -> SubnetworkJacobian:
    copied = private_copy(network, torch.device("cpu"))
    return make_jacobian(copied, WeightLayout.of(network), indices, inputs, find_head(copied, inputs))


@pytest.mark.parametrize("share", [0.3, 1.0])
@pytest.mark.parametrize("name", HEADS)
def test_equals_plain_differentiation(name: str, share: float) -> None:
    network, inputs = build_head(name)
    total = WeightLayout.of(network).total
    indices = torch.randperm(total, generator=torch.Generator().manual_seed(1))[: int(share * total)].sort().values
    mean, found = jacobian_of(network, inputs, indices)(inputs)
    true_mean, truth = reference.full_jacobian(network, inputs)
    expected = truth[:, :, indices.numpy()]
    np.testing.assert_allclose(mean.numpy(), true_mean, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-4, atol=1e-6 * np.abs(expected).max())


@pytest.mark.parametrize("factor", [10.0, -100.0, 0.0])
@pytest.mark.parametrize("name", HEADS)
def test_equals_plain_differentiation_far_from_the_examples(name: str, factor: float) -> None:
    """Whatever is clipped, gated or compared there, and was not for the examples that the routes were tried on."""
    network, inputs = build_head(name)
    indices = torch.arange(WeightLayout.of(network).total)
    mean, found = jacobian_of(network, inputs, indices)(factor * inputs)
    true_mean, expected = reference.full_jacobian(network, factor * inputs)
    np.testing.assert_allclose(mean.numpy(), true_mean, rtol=1e-4, atol=1e-4 * np.abs(true_mean).max())
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-3, atol=1e-4 * np.abs(expected).max())


@pytest.mark.parametrize("name", HEADS)
def test_which_layers_take_a_closed_form(name: str) -> None:
    network, inputs = build_head(name)
    plan = jacobian_of(network, inputs, torch.arange(WeightLayout.of(network).total)).plan
    _, head, separate = HEADS[name]
    assert {item.parameter.name.rpartition(".")[0] for item in plan.in_head} == ({head} if head else set())
    assert {item.path for item in plan.by_feature} == set(separate)
    assert not {item.parameter.name.rpartition(".")[0] for item in plan.structured} & {head, *separate}


def test_a_gate_that_is_closed_for_the_examples_still_mixes_the_features() -> None:
    """Its derivative is zero there and not elsewhere: values alone would not tell."""
    network, inputs = Gated().double().eval(), torch.randn(2, 3, 6, 6, dtype=torch.float64)
    network.close()
    conv = torch.arange(network.conv.weight.numel())  # the first parameter
    by_channel = reference.full_jacobian(network, inputs)[1][:, :, conv.numpy()].reshape(2, 3, 4, -1)
    assert not by_channel.any()
    assert find_head(network, inputs) == LinearHead("head", frozenset({"gate"}))


def test_channels_that_are_shuffled_are_not_taken_for_separate() -> None:
    """Each feature moves exactly one, but another one."""
    network, inputs = ShuffledChannels().eval(), torch.randn(2, 3, 6, 6)
    assert find_head(network, inputs) == LinearHead("head")


@pytest.mark.parametrize("features", [1, 2, 5, 64, 65])
def test_any_number_of_features(features: int) -> None:
    network = nn.Sequential(nn.Linear(3, features), nn.Tanh(), nn.Linear(features, 2)).eval()
    assert find_head(network, torch.randn(2, 3)) == LinearHead("2", frozenset({"0"}))
    if features > 1:
        mixing = nn.Sequential(nn.Linear(3, features), nn.Softmax(1), nn.Linear(features, 2)).eval()
        assert find_head(mixing, torch.randn(2, 3)) == LinearHead("2")


class Clamped(nn.Sequential):
    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = super().forward(x)
        return result.clamp(-1e6, 1e6)


def test_a_head_that_a_hook_of_the_users_changes_is_not_one() -> None:
    network, inputs = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)), torch.randn(2, 3)
    network[2].register_forward_hook(lambda _, __, output: output.clamp(-1e6, 1e6))
    assert find_head(network, inputs) is None


def test_outputs_that_are_changed_after_the_last_layer_are_not_those_of_a_head() -> None:
    """The clamp does nothing to these examples."""
    layers, inputs = (nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)), torch.randn(2, 3)
    assert find_head(nn.Sequential(*layers), inputs) == LinearHead("2", frozenset({"0"}))
    assert find_head(Clamped(*layers), inputs) is None


def test_head_and_separate_layers_are_not_differentiated_for_each_output(monkeypatch: pytest.MonkeyPatch) -> None:
    network, inputs = build_head("residual")
    layout = WeightLayout.of(network)
    upper = torch.cat([torch.arange(p.offset, p.offset + p.size) for p in layout.parameters if "stem" not in p.name])
    jacobian, passes, grad = jacobian_of(network, inputs, upper), list[int](), torch.autograd.grad

    def counted(*arguments: Any, **options: Any) -> Any:
        passes.append(1)
        return grad(*arguments, **options)

    monkeypatch.setattr(torch.autograd, "grad", counted)
    jacobian(inputs)
    assert len(passes) == 1
