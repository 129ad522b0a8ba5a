"""Outputs and derivatives that are NaN or infinite: a clear error that says where they begin."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from demur.offline.config import FitConfig
from demur.offline.fit import fit_bundle
from demur.offline.network.finite import NotFiniteError, check_finite_jacobian, check_finite_outputs
from demur.offline.network.model_copy import private_copy

# the exporter's own deprecations are not ours to mend
pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.usefixtures("short_fits")]


class Function(nn.Module):
    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


def network(function: Callable[[Tensor], Tensor]) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), Function(function), nn.Linear(6, 2))


def fit(model: nn.Module, out: Path) -> None:
    generator = torch.Generator().manual_seed(0)
    inputs, targets = torch.randn(40, 4, generator=generator), torch.arange(40) % 2
    batches = [(inputs[:20], targets[:20]), (inputs[20:], targets[20:])]
    config = FitConfig(subnetwork_size=10, selection="random", prior_precision=1.0)
    fit_bundle(model, batches, out, calibration_loader=batches, config=config)


def test_a_derivative_that_nan_to_num_hides(tmp_path: Path) -> None:
    """Its value is finite: only the derivative is not."""
    with pytest.raises(
        NotFiniteError, match=r"derivatives that are NaN .* begins in '2' \(Function\).* of '1'"
    ) as caught:
        fit(network(lambda x: x.sqrt().nan_to_num()), tmp_path / "bundle")
    assert (caught.value.layer, caught.value.kind) == ("2", "Function")
    assert not (tmp_path / "bundle").exists()


def test_outputs(tmp_path: Path) -> None:
    with pytest.raises(NotFiniteError, match=r"outputs that are NaN .* begins in '2' \(Function\)"):
        fit(network(torch.log), tmp_path / "bundle")


def test_the_examples_and_their_range_are_named() -> None:
    model = private_copy(network(lambda x: (x + 0.9999).sqrt()), torch.device("cpu"))
    x = torch.tensor([[0.0] * 4, [100.0] * 4, [0.5] * 4, [-100.0] * 4])
    mean = model(x)
    bad = ", ".join(str(i) for i in range(4) if not bool(torch.isfinite(mean[i]).all()))
    assert bad
    with pytest.raises(NotFiniteError, match=rf"examples {bad} of these data .* between -100 and 100; "):
        check_finite_outputs(model, x, mean, "these data")


def test_what_is_finite_passes() -> None:
    model = private_copy(network(torch.exp), torch.device("cpu"))
    x = torch.zeros(2, 4)
    check_finite_outputs(model, x, model(x), "these data")
    check_finite_jacobian(model, x, torch.zeros(2, 2, 3), "these data")
