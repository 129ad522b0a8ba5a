"""The order of calls and the multiply-adds in it, counted by hand for small networks."""

import pytest
import torch
from torch import Tensor, nn

from demur.offline.network.call_order import CallOrder
from tests.support.networks import NETWORKS, build, hooks_of


def order_of(name: str) -> CallOrder:
    network, inputs, _ = build(name)
    return CallOrder.of(network.eval(), inputs[:1])


def test_a_convolutional_network_by_hand() -> None:
    network = nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1, groups=2), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(64, 5)
    )
    order = CallOrder.of(network.eval(), torch.zeros(1, 2, 4, 4))
    work = {call.path: call.multiply_adds for call in order.calls}
    assert [call.path for call in order.calls] == ["", "0", "1", "2", "3", "4"]
    assert work == {"": 0, "0": 4 * 1 * 9 * 16, "1": 0, "2": 0, "3": 0, "4": 64 * 5}
    total = 576 + 320
    assert order.backward_share(["4.weight"]) == order.backward_share(["4.bias"]) == 0
    assert order.backward_share(["0.weight"]) == pytest.approx(320 / total)
    assert order.backward_share(["1.weight", "4.weight"]) == pytest.approx(320 / total)
    assert order.groups() == {
        "0.weight": 0, "0.bias": 0, "1.weight": 0, "1.bias": 0, "4.weight": 1, "4.bias": 1,
    }  # fmt: skip


def test_a_linear_layer_works_at_every_position_and_a_transposed_convolution_at_those_of_its_input() -> None:
    sequence = nn.Sequential(nn.Linear(6, 3), nn.Flatten(), nn.Linear(12, 2))
    assert [c.multiply_adds for c in CallOrder.of(sequence, torch.zeros(1, 4, 6)).calls] == [0, 18 * 4, 0, 24]
    grown = nn.Sequential(nn.ConvTranspose2d(3, 5, 2, stride=2), nn.Flatten(), nn.Linear(5 * 36, 2))
    assert [c.multiply_adds for c in CallOrder.of(grown, torch.zeros(1, 3, 3, 3)).calls] == [0, 60 * 9, 0, 360]


def test_a_layer_called_twice_is_crossed_from_its_first_call() -> None:
    order = order_of("called-twice")
    assert [call.path for call in order.calls] == ["", "inner", "inner", "head"]
    assert order.backward_share(["inner.weight"]) == pytest.approx((36 + 12) / (36 + 36 + 12))


def test_a_look_up_costs_nothing_and_a_tied_matrix_counts_from_its_earliest_module() -> None:
    order = order_of("tied")
    work = {call.path: call.multiply_adds for call in order.calls}
    assert work["embedding"] == 0
    assert work["decoder"] == 120 * 5
    assert order.first_call["embedding.weight"] == 1


def test_a_parameter_of_a_module_that_is_never_called_counts_from_the_caller_around_it() -> None:
    order = order_of("other-use")
    assert order.first_call["silent.weight"] == 0
    assert order.backward_share(["silent.weight"]) <= 1


@pytest.mark.parametrize("name", NETWORKS)
def test_every_parameter_has_a_place_and_a_share(name: str) -> None:
    network, inputs, _ = build(name)
    network.eval()
    hooks = hooks_of(network)
    order = CallOrder.of(network, inputs[:1])
    names = [parameter for parameter, _ in network.named_parameters()]
    assert order.first_call.keys() == order.groups().keys() == set(names)
    assert all(0 <= order.backward_share([parameter]) <= 1 for parameter in names)
    assert order.backward_share(names) == max(order.backward_share([parameter]) for parameter in names)
    assert hooks_of(network) == hooks


def test_the_hooks_go_also_when_the_network_fails() -> None:
    class Failing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(3, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.inner(x) @ x

    network = Failing()
    with pytest.raises(RuntimeError):
        CallOrder.of(network, torch.zeros(1, 3))
    assert not any(hooks_of(network))


def test_a_network_without_any_matrix_costs_one_pass() -> None:
    network = nn.Sequential(nn.BatchNorm1d(4))
    order = CallOrder.of(network.eval(), torch.zeros(1, 4))
    assert order.backward_share(["0.weight"]) == 0.0
