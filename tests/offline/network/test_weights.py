"""Positions of trainable weights: counted over trainable tensors only, each tensor once, exchanged by name."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from demur.offline.network.weights import Parameter, WeightLayout


def mlp() -> nn.Sequential:
    return nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 4), nn.Linear(4, 1))


def test_positions_follow_named_parameters() -> None:
    layout = WeightLayout.of(mlp())
    assert layout.parameters == (
        Parameter("0.weight", (3, 2), 0, 6),
        Parameter("0.bias", (3,), 6, 3),
        Parameter("2.weight", (4, 3), 9, 12),
        Parameter("2.bias", (4,), 21, 4),
        Parameter("3.weight", (1, 4), 25, 4),
        Parameter("3.bias", (1,), 29, 1),
    )
    assert layout.total == 30 == sum(p.numel() for p in mlp().parameters())


def test_a_frozen_tensor_in_between_shifts_nothing() -> None:
    model = mlp()
    model[2].requires_grad_(False)
    layout = WeightLayout.of(model)
    assert [(p.name, p.offset, p.size) for p in layout.parameters] == [
        ("0.weight", 0, 6),
        ("0.bias", 6, 3),
        ("3.weight", 9, 4),
        ("3.bias", 13, 1),
    ]
    flat = layout.flatten(dict(model.named_parameters()))
    trainable = [p.detach().reshape(-1) for p in model.parameters() if p.requires_grad]
    assert torch.equal(flat, torch.cat(trainable))
    # Positions 9 and 13 are in the last layer, although the frozen layer stands at 9 when all tensors are counted.
    found = [(p.name, positions.tolist()) for p, positions in layout.locate(torch.tensor([5, 9, 13]))]
    assert found == [("0.weight", [5]), ("3.weight", [0]), ("3.bias", [0])]


def test_a_frozen_first_tensor_shifts_nothing() -> None:
    model = mlp()
    model[0].weight.requires_grad_(False)
    assert WeightLayout.of(model).parameters[0] == Parameter("0.bias", (3,), 0, 3)


def test_tied_tensors_count_once_under_their_first_name() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3), nn.Linear(3, 2))
    model[1].weight = model[0].weight
    layout = WeightLayout.of(model)
    assert [p.name for p in layout.parameters] == ["0.weight", "0.bias", "1.bias", "2.weight", "2.bias"]
    assert layout.total == 9 + 3 + 3 + 6 + 2


def test_an_empty_tensor_has_no_position() -> None:
    model = nn.Sequential(nn.Linear(2, 2))
    model.register_parameter("empty", nn.Parameter(torch.zeros(0, 5)))
    assert [p.name for p in WeightLayout.of(model).parameters] == ["0.weight", "0.bias"]


def test_a_scalar_parameter_has_one_position() -> None:
    model = nn.Module()
    model.register_parameter("scale", nn.Parameter(torch.tensor(2.0)))
    layout = WeightLayout.of(model)
    assert layout.parameters == (Parameter("scale", (), 0, 1),)
    assert layout.flatten(dict(model.named_parameters())).tolist() == [2.0]


@pytest.mark.parametrize("model", [nn.ReLU(), mlp().requires_grad_(False)], ids=["no parameter", "all frozen"])
def test_no_trainable_parameter_is_an_error(model: nn.Module) -> None:
    with pytest.raises(ValueError, match="found no trainable parameter"):
        WeightLayout.of(model)


@settings(derandomize=True, deadline=None)
@given(st.sets(st.integers(0, 29), min_size=1))
def test_locate_gives_every_index_once_within_its_tensor(chosen: set[int]) -> None:
    layout = WeightLayout.of(mlp())
    indices = torch.tensor(sorted(chosen))
    located = list(layout.locate(indices))
    assert torch.equal(torch.cat([positions + p.offset for p, positions in located]), indices)
    assert [p.offset for p, _ in located] == sorted(p.offset for p, _ in located)
    assert all(len(positions) and bool((positions < p.size).all()) for p, positions in located)


@settings(derandomize=True, deadline=None)
@given(st.sets(st.integers(0, 29), min_size=1))
def test_locate_and_flatten_speak_of_the_same_weight(chosen: set[int]) -> None:
    torch.manual_seed(0)
    model = mlp()
    layout = WeightLayout.of(model)
    named = dict(model.named_parameters())
    indices = torch.tensor(sorted(chosen))
    by_name = [named[p.name].reshape(-1)[positions] for p, positions in layout.locate(indices)]
    assert torch.equal(layout.flatten(named)[indices], torch.cat(by_name))


def test_no_index_locates_nothing() -> None:
    assert list(WeightLayout.of(mlp()).locate(torch.tensor([], dtype=torch.int64))) == []
