"""The variances of a few outputs or of a margin, and how the others follow: against the whole Jacobian in float64."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from demur.offline.jacobian.find_head import find_head
from demur.offline.jacobian.jacobian import SubnetworkJacobian
from demur.offline.jacobian.output_rule import ALL_OUTPUTS, Kind, OutputRule, filled, leading, output_rule
from demur.offline.jacobian.plan import make_jacobian
from demur.offline.network.model_copy import private_copy
from demur.offline.network.weights import WeightLayout
from demur.service.maths.predictive import functional_variance
from tests import reference
from tests.support.heads import HEADS, build_head
from tests.support.networks import NETWORKS, build

RULES: list[tuple[Kind, int]] = [("top", 1), ("top", 2), ("margin", 2)]


def all_weights(name: str) -> tuple[nn.Module, Tensor, Tensor]:
    if name in NETWORKS:
        return build(name)
    network, inputs = build_head(name)
    return network, inputs, torch.arange(WeightLayout.of(network).total)


def jacobian_of(network: nn.Module, inputs: Tensor, indices: Tensor, rule: OutputRule) -> SubnetworkJacobian:
    copied = private_copy(network, torch.device("cpu"))
    return make_jacobian(copied, WeightLayout.of(network), indices, inputs, find_head(copied, inputs), rule)


def precision_of(size: int) -> np.ndarray:
    root = np.random.default_rng(size).normal(size=(size, size)) / np.sqrt(size)
    matrix: np.ndarray = root @ root.T + 0.1 * np.eye(size)
    return matrix


@pytest.mark.parametrize("name", [*NETWORKS, *HEADS])
def test_equals_the_whole_jacobian(name: str) -> None:
    """Every route: backward passes, closed forms, bare parameters, the generic one."""
    network, inputs, indices = all_weights(name)
    true_mean, truth = reference.full_jacobian(network, inputs)
    expected, precision = truth[:, :, indices.numpy()], precision_of(len(indices))
    scale_tril = np.linalg.cholesky(np.linalg.inv(precision))
    for kind, count in RULES:
        if count > true_mean.shape[1]:
            continue
        rule = output_rule(count if kind == "top" else kind, true_mean.shape[1])
        mean, derivatives = jacobian_of(network, inputs, indices, rule).predictive(inputs)
        assert derivatives.shape[1] == rule.count(true_mean.shape[1])
        found = filled(rule, functional_variance(derivatives.double().numpy(), scale_tril), mean)
        variance = reference.filled_variance(true_mean, expected, precision, kind, count)
        np.testing.assert_allclose(found, variance, rtol=1e-4, atol=1e-6 * variance.max())


def test_several_posteriors_are_filled_at_once() -> None:
    mean, variances = torch.randn(5, 4), np.random.default_rng(0).uniform(size=(5, 2, 3))
    rule = output_rule(2, 4)
    together = filled(rule, variances, mean)
    apart = np.stack([filled(rule, variances[:, :, g], mean) for g in range(3)], axis=2)
    np.testing.assert_array_equal(together, apart)
    assert together.shape == (5, 4, 3)


def test_as_many_outputs_as_there_are_is_all_of_them() -> None:
    assert output_rule(10, 10) is ALL_OUTPUTS
    assert output_rule("all", 10) is ALL_OUTPUTS
    assert output_rule(10, 3) is ALL_OUTPUTS


@given(
    logits=st.lists(st.lists(st.floats(-50, 50, width=32), min_size=3, max_size=3), min_size=1, max_size=4),
    asked=st.sampled_from([1, 2, "margin"]),
)
def test_filled_variances_lie_between_those_computed(logits: list[list[float]], asked: Any) -> None:
    mean, rule = torch.tensor(logits), output_rule(asked, 3)
    computed = np.random.default_rng(1).uniform(1, 2, size=(len(mean), rule.count(3)))
    found = filled(rule, computed, mean)
    assert found.shape == mean.shape
    assert (found >= computed.min(axis=1, keepdims=True) - 1e-12).all()
    assert (found <= computed.max(axis=1, keepdims=True) + 1e-12).all()


def test_the_first_of_equal_outputs_leads() -> None:
    mean = torch.tensor([[1.0, 3.0, 3.0, 2.0, 3.0], [0.0, 0.0, 0.0, 0.0, 0.0]])
    assert leading(mean, 4).argmax(2).tolist() == [[1, 2, 4, 3], [0, 1, 2, 3]]


@given(logits=st.lists(st.floats(-50, 50, width=32), min_size=2, max_size=6), count=st.integers(1, 2))
def test_leading_outputs_are_the_largest(logits: list[float], count: int) -> None:
    mean = torch.tensor([logits])
    places = leading(mean, count)
    assert (places.sum(2) == 1).all()
    values = (places @ mean.unsqueeze(2)).flatten().tolist()
    assert values == sorted(logits, reverse=True)[:count]
