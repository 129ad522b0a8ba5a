"""Weights that no output depends on are never chosen; a model that autograd cannot see through is refused."""

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from demur.offline.config import FitConfig, StrategyName
from demur.offline.fit import fit_bundle
from demur.offline.network.reached import reached_parameters, unreached_note
from demur.offline.network.unsupported import UnsupportedModelError
from demur.offline.network.weights import WeightLayout
from demur.service.bundle import read_bundle
from tests.support.tiers import quick_among

pytestmark = pytest.mark.usefixtures("short_fits")

INPUTS = torch.randn(60, 4, generator=torch.Generator().manual_seed(0))
TARGETS = (INPUTS[:, 0] > 0).long() + (INPUTS[:, 1] > 0).long()


class TwoHeads(nn.Module):
    """The second head, called last, serves training alone."""

    def __init__(self, frozen_body: bool = False) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.body, self.main, self.second = nn.Linear(4, 8), nn.Linear(8, 3), nn.Linear(8, 5)
        self.frozen_body = frozen_body

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        h = torch.relu(self.body(x))
        h = h.detach() if self.frozen_body else h
        return self.main(h), self.second(h)


class First(nn.Module):
    """The first of the things that a model returns."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Tensor:
        first: Tensor = self.model(x)[0]
        return first


class OddWayBack(torch.autograd.Function):
    @staticmethod
    def forward(_: object, x: Tensor) -> Tensor:
        return x.clone()


class Odd(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = OddWayBack.apply(super().forward(x))
        return out


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        (First(TwoHeads()), {"model.body.weight", "model.body.bias", "model.main.weight", "model.main.bias"}),
        (First(TwoHeads(frozen_body=True)), {"model.main.weight", "model.main.bias"}),
        (nn.Linear(4, 3), {"weight", "bias"}),
        (Odd(4, 3), {"weight", "bias"}),  # the way back fails: another choice may avoid it
    ],
    ids=["second head", "detached body", "all", "no way back"],
)
def test_names(model: nn.Module, expected: set[str]) -> None:
    assert reached_parameters(model, WeightLayout.of(model), INPUTS[:2]) == expected


def test_the_note_counts_what_is_left_out() -> None:
    model = First(TwoHeads())
    layout = WeightLayout.of(model)
    reached = reached_parameters(model, layout, INPUTS[:2])
    (note,) = unreached_note(layout, reached)
    assert note.startswith("45 weights have no effect on the outputs (model.second.weight, model.second.bias)")
    assert unreached_note(layout, frozenset(p.name for p in layout.parameters)) == ()


class Still(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            return super().forward(x)


class ThroughNumPy(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return torch.as_tensor(super().forward(x).numpy())


@pytest.mark.parametrize(
    ("model", "words"), [(Still(4, 3), "depend on no weight"), (ThroughNumPy(4, 3), "where derivatives are asked for")]
)
def test_what_autograd_cannot_see_through_is_refused(model: nn.Module, words: str) -> None:
    with pytest.raises(UnsupportedModelError, match=words):
        reached_parameters(model, WeightLayout.of(model), INPUTS[:2])


@pytest.mark.parametrize("selection", quick_among(["auto", "last-layer"], {"auto"}))
def test_a_fit_chooses_weights_of_the_head_that_answers(selection: StrategyName, tmp_path: Path) -> None:
    lines: list[str] = []
    config = FitConfig(selection=selection, subnetwork_size=27, false_reject_rate=0.1, device="cpu")
    data = INPUTS, TARGETS
    fit_bundle(TwoHeads(), data, tmp_path / "bundle", calibration_loader=data, config=config, say=lines.append)
    chosen = {p.name for p in read_bundle(tmp_path / "bundle").manifest.selection.parameters if p.chosen}
    assert chosen == {"main.weight", "main.bias"}
    assert any(line.startswith("45 weights have no effect") for line in lines)


def test_a_head_without_effect_is_no_place_to_choose_in(tmp_path: Path) -> None:
    config = FitConfig(within=("second",), false_reject_rate=0.1, device="cpu")
    data = INPUTS, TARGETS
    with pytest.raises(ValueError, match="within: found 'second', whose weights have no effect on the outputs"):
        fit_bundle(TwoHeads(), data, tmp_path / "bundle", calibration_loader=data, config=config)
