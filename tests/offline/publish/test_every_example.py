"""What is served is compared with torch on every held-out example, and what differs for a few of them is refused."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from demur.offline import FitConfig, VerificationError, fit_bundle
from demur.offline.export import rewrites
from demur.offline.publish.every_example import MOVED, EveryExample
from demur.service import Predictor

pytestmark = pytest.mark.filterwarnings("ignore")  # the exporter's own deprecations are not ours to mend
CONFIG = FitConfig(
    subnetwork_size=8,
    selection="last-layer",
    added_weights=False,
    prior_precision=1.0,
    temperature=1.0,
    false_reject_rate=0.1,
    device="cpu",
)
PLACES = [31, 57]  # of the held-out examples at the edge


class Direction(nn.Module):
    """Knows an angle, which jumps where x is below zero and y changes its sign: y = 0 belongs to one side."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(3, 2)

    def forward(self, x: Tensor) -> Tensor:
        outputs: Tensor = self.head(torch.cat([x, torch.atan2(x[:, :1], x[:, 1:])], dim=1))
        return outputs


def data(seed: int) -> tuple[Tensor, Tensor]:
    inputs = torch.randn(120, 2, generator=torch.Generator().manual_seed(seed))
    inputs[PLACES] = torch.tensor([0.0, -1.0])
    return inputs, (inputs[:, 0] >= 0).long()


@pytest.fixture
def network() -> nn.Module:
    torch.manual_seed(0)
    return Direction()


def test_an_edge_is_served_as_torch_answers_it(network: nn.Module, tmp_path: Path) -> None:
    path = fit_bundle(network, data(0), tmp_path / "bundle", calibration_loader=data(1), config=CONFIG)
    inputs = data(2)[0]
    with torch.no_grad():
        expected = network(inputs)
    np.testing.assert_allclose(Predictor.load(path).predict(inputs.numpy()).mean, expected, rtol=1e-4, atol=1e-5)


def test_an_edge_that_is_served_otherwise_is_refused(
    network: nn.Module, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(rewrites.REPLACEMENTS, torch.atan2)
    with pytest.raises(VerificationError) as refused:
        fit_bundle(network, data(0), tmp_path / "bundle", calibration_loader=data(1), config=CONFIG)
    message = str(refused.value)
    assert "for 2 of 120 held-out examples" in message
    assert not (tmp_path / "bundle").exists()


def every(off: list[float], moved: list[float], variance: Sequence[float] = ()) -> EveryExample:
    """In two parts."""
    parts = torch.split(torch.arange(float(len(off)))[:, None], 2)
    return EveryExample(parts, np.array(off), np.array(moved), np.array(variance or [0.0] * len(off)))


def test_those_furthest_off_are_verified() -> None:
    found = every([0.0, 3.0, np.inf, 1.0, 2.0], [0.0] * 5, [1.0, 5.0, 0.0, 2.0, 9.0]).furthest(3)
    assert found.flatten().tolist() == [1.0, 2.0, 4.0]


def test_half_of_them_are_those_of_the_largest_variance() -> None:
    found = every([0.0, 3.0, 9.0, 1.0, 2.0, 8.0], [0.0] * 6, [7.0, 0.0, 0.0, 9.0, 0.0, 8.0]).furthest(4)
    assert found.flatten().tolist() == [0.0, 2.0, 3.0, 5.0]
    assert len(every([1.0, 2.0], [0.0] * 2).furthest(8)) == 2


def test_one_variance_may_jump_and_more_may_not() -> None:
    one, two = [0.0] * 100, [0.0] * 100
    one[3] = two[3] = two[7] = 2 * MOVED
    every([0.0] * 100, one).check()
    with pytest.raises(VerificationError, match="by more than 2 % for 2 of 100 held-out examples"):
        every([0.0] * 100, two).check()
    with pytest.raises(VerificationError, match="2 of 20"):
        every([0.0] * 20, [np.inf] * 2 + [0.0] * 18).check()
