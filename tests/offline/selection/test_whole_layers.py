"""Whole layers, and which weights may be chosen at all."""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from demur.offline.network.weights import WeightLayout
from demur.offline.selection.candidate_weights import candidate_positions
from demur.offline.selection.context import SelectionContext
from demur.offline.selection.registry import select
from tests.support.selections import context, problem


class Backwards(nn.Module):
    """The head is defined first and called last; a weight of the root itself is used first."""

    def __init__(self, root_weight: bool) -> None:
        super().__init__()
        self.head, self.body = nn.Linear(3, 2), nn.Linear(4, 3)
        self.position = nn.Parameter(torch.ones(4), requires_grad=root_weight)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.tanh(self.body(x + self.position)))


class Stages(nn.Module):
    """Paths of which one is the beginning of another's name."""

    def __init__(self) -> None:
        super().__init__()
        self.layer1 = nn.Sequential(nn.Linear(4, 3), nn.LayerNorm(3))
        self.layer10 = nn.Linear(3, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer10(self.layer1(x))


def names(model: nn.Module, positions: Tensor) -> list[str]:
    """Parameters that hold the positions; all of each or an assertion fails."""
    located = list(WeightLayout.of(model).locate(positions))
    assert all(len(inside) == p.size for p, inside in located)
    return [p.name for p, _ in located]


def located(given: SelectionContext, strategy: str, options: dict[str, Any]) -> list[tuple[str, int]]:
    indices = select(strategy, given, options).indices
    return [(p.name, len(inside)) for p, inside in given.job.layout.locate(indices)]


# --------------------------------------------------------------------------- last layer


@pytest.mark.parametrize("root_weight", [False, True], ids=["layers only", "weight of the root"])
def test_the_last_layer_is_the_one_called_last(root_weight: bool) -> None:
    """A vision transformer has such a root weight: its position embedding is not its last layer."""
    model, batches = Backwards(root_weight), problem()[1]
    indices = select("last-layer", context(model, batches, 1000), {}).indices
    start = 4 if root_weight else 0  # named_parameters() gives the root's own first
    assert indices.tolist() == list(range(start, start + 8))


def test_a_frozen_last_layer_is_passed_over() -> None:
    model, batches = problem()
    model[6].requires_grad_(False)  # type: ignore[index]
    assert located(context(model, batches, 25), "last-layer", {}) == [("4.weight", 20), ("4.bias", 5)]


def test_the_last_layer_is_the_last_that_holds_candidates() -> None:
    model, batches = problem()
    layout = WeightLayout.of(model)
    within = candidate_positions(model, layout, ["0", "4"])
    found = located(context(model, batches, 25, candidate_weights=within), "last-layer", {})
    assert found == [("4.weight", 20), ("4.bias", 5)]


@pytest.mark.parametrize(
    ("strategy", "what", "size"), [("last-layer", "the last layer '6'", 12), ("all", "what may be chosen", 65)]
)
def test_more_than_was_asked_for_is_an_error(strategy: str, what: str, size: int) -> None:
    with pytest.raises(ValueError, match=f"found {size - 1}, {what} has {size} weights; raise it to {size}"):
        select(strategy, context(*problem(), size - 1), {})


def test_all_is_what_may_be_chosen() -> None:
    model, batches = problem()
    given = context(model, batches, 100, candidate_weights=candidate_positions(model, WeightLayout.of(model), ["4"]))
    assert located(given, "all", {}) == [("4.weight", 20), ("4.bias", 5)]


# --------------------------------------------------------------------------- candidates


def test_without_restriction_every_position_is_a_candidate() -> None:
    model = problem()[0]
    assert torch.equal(candidate_positions(model, WeightLayout.of(model), None), torch.arange(65))


def test_within_takes_modules_by_whole_components() -> None:
    model = Stages()
    layout = WeightLayout.of(model)
    within = {path: names(model, candidate_positions(model, layout, path)) for path in (("layer1",), ("layer10",))}
    assert within[("layer10",)] == ["layer10.weight", "layer10.bias"]
    assert within[("layer1",)] == ["layer1.0.weight", "layer1.0.bias", "layer1.1.weight", "layer1.1.bias"]


def test_frozen_parameters_are_no_candidates() -> None:
    model = Stages()
    model.layer1[0].weight.requires_grad_(False)
    found = candidate_positions(model, WeightLayout.of(model), ["layer1"])
    assert names(model, found) == ["layer1.0.bias", "layer1.1.weight", "layer1.1.bias"]
    assert found.tolist() == list(range(9))


@pytest.mark.parametrize(
    ("within", "message"),
    [
        (["layer2"], "within: found 'layer2', expected a module of the network such as layer1"),
        ("layer1", "within: found 'layer1', expected a list of paths of modules"),
        ([], r"within: found \[\], expected a list of paths of modules"),
    ],
)
def test_candidates_that_cannot_be_are_an_error(within: Any, message: str) -> None:
    model = Stages()
    with pytest.raises(ValueError, match=message):
        candidate_positions(model, WeightLayout.of(model), within)


def test_a_module_without_weights_is_an_error() -> None:
    model = problem()[0]
    with pytest.raises(ValueError, match="within: found the module '2', which holds no trainable weight"):
        candidate_positions(model, WeightLayout.of(model), ["2"])


@settings(max_examples=30)
@given(st.sets(st.sampled_from(["0", "1", "4", "6"]), min_size=1))
def test_candidates_are_ascending_and_add_up(paths: set[str]) -> None:
    model = problem()[0]
    layout = WeightLayout.of(model)
    found = candidate_positions(model, layout, sorted(paths))
    assert bool((found.diff() > 0).all())
    inside = (p for p in layout.parameters if p.name.split(".")[0] in paths)
    assert set(found.tolist()) == {position for p in inside for position in range(p.offset, p.offset + p.size)}
