"""Which layers the rules are for, among classes that derive from torch's."""

from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm

from demur.offline.jacobian.layer_rules import computes_as, is_structured


class Named(nn.Linear):
    """Has a constructor and a helper of its own, and computes nothing."""

    def __init__(self) -> None:
        super().__init__(3, 2)

    def reset_parameters(self) -> None:
        nn.init.ones_(self.weight)

    def share_of_zeros(self) -> float:
        return float((self.weight == 0).float().mean())


class Twice(Named):
    """Computes something else."""

    def forward(self, x: Tensor) -> Tensor:
        return 2 * super().forward(x)


class Called(Named):
    """So does this one."""

    def __call__(self, x: Tensor) -> Tensor:
        return 2 * super().__call__(x)


class Padded(nn.Conv2d):
    """So does this one, in a step of the base's forward pass."""

    def _conv_forward(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return super()._conv_forward(x.flip(3), weight, bias)


def test_a_class_that_computes_nothing_is_the_layer_that_it_derives_from() -> None:
    assert computes_as(Named()) is nn.Linear
    assert computes_as(nn.MultiheadAttention(4, 2).out_proj) is nn.Linear
    assert computes_as(nn.BatchNorm1d(3)) is nn.BatchNorm1d
    assert not is_structured(nn.BatchNorm1d(3, track_running_stats=False))


def test_what_computes_something_else_has_no_rules() -> None:
    layers = [Twice(), Called(), Padded(1, 1, 1), weight_norm(nn.Linear(3, 2)), nn.ConvTranspose1d(1, 1, 1), nn.ReLU()]
    assert [computes_as(layer) for layer in layers] == [None] * len(layers)
    assert not any(is_structured(layer) for layer in layers)
