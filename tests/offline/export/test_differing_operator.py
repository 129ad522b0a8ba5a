"""offline/export/differing_operator.py: the operator that ONNX computes otherwise is found by its name."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from demur.offline.export.differing_operator import differing_operator

pytestmark = pytest.mark.filterwarnings("ignore")  # the exporter's own deprecations are not ours to mend
ROWS = torch.tensor([[1.0, 2.0, -3.0], [-20.0, 0.5, 7.0]])


class Network(nn.Module):
    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function
        self.stem, self.head = nn.Linear(3, 3), nn.Linear(3, 2)
        with torch.no_grad():
            self.stem.weight.copy_(torch.eye(3))
            self.stem.bias.zero_()

    def forward(self, x: Tensor) -> Tensor:
        outputs: Tensor = self.head(self.function(torch.relu(-self.stem(x)) + self.stem(x)))
        return outputs


def test_one_that_differs_is_named() -> None:
    network = Network(lambda x: torch.special.log_ndtr(x - 21).clamp(min=-1e6))
    assert differing_operator(network, ROWS) == "aten.special_log_ndtr"


@pytest.mark.slow
@pytest.mark.parametrize(
    "before",
    [lambda x: torch.fft.irfft(torch.fft.rfft(x), 3), lambda x: torch.empty_like(x).fill_(1.0) * x],
)
def test_what_cannot_be_compared_is_not_blamed(before: Callable[[Tensor], Tensor]) -> None:
    network = Network(lambda x: torch.special.log_ndtr(before(x) - 21).clamp(min=-1e6))
    assert differing_operator(network, ROWS) == "aten.special_log_ndtr"


@pytest.mark.slow
def test_types_that_numpy_does_not_have_end_the_search() -> None:
    assert differing_operator(Network(lambda x: x.bfloat16().float()), ROWS) is None


@pytest.mark.parametrize(
    "function",
    [
        torch.tanh,
        pytest.param(lambda x: x.sort(-1).values, marks=pytest.mark.slow),
        pytest.param(lambda x: torch.atan2(x, 0 * x - 1), marks=pytest.mark.slow),
        pytest.param(lambda x: x % 0.1 + x // 0.1, marks=pytest.mark.slow),
        pytest.param(lambda x: torch.expm1(1e-8 * x) * 1e8 + x.copysign(x - 1), marks=pytest.mark.slow),
    ],
)
def test_what_is_computed_alike_is_not(function: Callable[[Tensor], Tensor]) -> None:
    assert differing_operator(Network(function), ROWS) is None
