"""Places that cost too much are left out; `auto` takes live weights of the first one that has enough."""

import itertools
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from demur.offline.selection.context import SelectionContext
from demur.offline.selection.places import LEEWAY, USUAL_COST, affordable_places, affordable_weights, drawn
from demur.offline.selection.registry import check_options, select
from tests.support.selections import DEAD, context, dead_problem

NESTED = [("8",), ("6", "8"), ("3", "6", "8"), None]


def image_data(count: int) -> tuple[Tensor, Tensor]:
    """A bright bar in one of four places."""
    generator = torch.Generator().manual_seed(100)
    targets = torch.randint(0, 4, (count,), generator=generator)
    inputs = 0.4 * torch.randn(count, 1, 8, 8, generator=generator)
    inputs[torch.arange(count), 0, 2 * targets] += 1.0
    return inputs, targets


def image_network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 6, 3, padding=1),
        nn.BatchNorm2d(6),
        nn.ReLU(),
        nn.Conv2d(6, 8, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(128, 12),
        nn.ReLU(),
        nn.Linear(12, 4),
    )


class AppendsZero(nn.Module):
    """A network whose outputs are those of no layer."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = image_network()

    def forward(self, x: Tensor) -> Tensor:
        outputs: Tensor = self.inner(x)
        return torch.cat([outputs, torch.zeros_like(outputs[:, :1])], dim=1)


@pytest.fixture
def limit(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Sets the most that a prediction may cost; it is so much that all places may be chosen."""

    def at(value: float) -> None:
        monkeypatch.setattr("demur.offline.selection.places.USUAL_COST", value)
        monkeypatch.setattr("demur.offline.selection.places.LEEWAY", 1.0)

    at(1000.0)
    return at


def context_of(size: int = 20, model: nn.Module | None = None, outputs: int = 4, **changes: Any) -> SelectionContext:
    inputs, targets = image_data(60)
    train = list(zip(inputs.split(25), targets.split(25), strict=True))
    return context(model or image_network(), train, size, outputs, **changes)


def test_places_hold_one_another_and_the_limit_cuts_the_dear_end(limit: Callable[[float], None]) -> None:
    every = affordable_places(context_of()).places
    assert [place.modules for place in every] == NESTED
    for inner, outer in pairwise(every):
        assert len(inner.positions) < len(outer.positions)
        assert torch.isin(inner.positions, outer.positions).all()
    limit((every[1].cost + every[2].cost) / 2)
    cheap = affordable_places(context_of()).places
    assert [place.modules for place in cheap] == NESTED[:2]
    assert torch.equal(affordable_weights(context_of()), cheap[-1].positions)


def test_the_limit_is_what_is_usual_or_a_little_above_the_least(monkeypatch: pytest.MonkeyPatch) -> None:
    usual = [place.name for place in affordable_places(context_of()).places]
    monkeypatch.setattr("demur.offline.selection.places.USUAL_COST", 1000.0)
    every = affordable_places(context_of()).places
    least = min(place.cost for place in affordable_places(context_of(1)).places)
    assert usual == [place.name for place in every if place.cost <= max(USUAL_COST, LEEWAY * least)]
    monkeypatch.setattr("demur.offline.selection.places.USUAL_COST", 1.0)
    assert all(place.cost <= LEEWAY * least for place in affordable_places(context_of()).places)


def test_fewer_weights_are_taken_where_so_many_cost_too_much_everywhere(limit: Callable[[float], None]) -> None:
    """Of a network without a head, each weight counts S times for every output."""
    few, many = (context_of(size, AppendsZero(), 5) for size in (25, 400))
    cheapest = [min(place.cost for place in affordable_places(one).places) for one in (few, many)]
    assert cheapest[0] < cheapest[1]
    given = context_of(400, AppendsZero(), 5)
    limit(1.001 * cheapest[0])
    found = affordable_places(given)
    assert 25 <= found.size < 400
    assert all(place.cost <= 1.001 * cheapest[0] for place in found.places)
    chosen = select("auto", given, {})
    assert len(chosen.indices) == found.size
    assert chosen.explanation is not None
    assert chosen.explanation.endswith("; 400 weights would cost more than is usual")


@pytest.mark.usefixtures("limit")
def test_weights_that_may_not_be_chosen_are_in_no_place() -> None:
    given = context_of()
    first = torch.arange(given.job.layout.parameters[0].size)
    (place,) = affordable_places(replace(given, candidate_weights=first)).places
    assert place.modules is None
    assert torch.equal(place.positions, first)


@pytest.mark.usefixtures("limit")
@pytest.mark.parametrize(("size", "place"), [(20, 0), (300, 1)])
def test_the_first_place_with_enough_live_weights_is_taken(size: int, place: int) -> None:
    given = context_of(size)
    chosen = select("auto", given, {})
    assert chosen.within == NESTED[place]
    assert len(chosen.indices) == size
    assert torch.isin(chosen.indices, affordable_places(given).places[place].positions).all()
    assert bool((chosen.indices.diff() > 0).all())


def test_a_network_without_a_head_has_its_last_modules() -> None:
    chosen = select("auto", context_of(model=AppendsZero(), outputs=5), {})
    assert chosen.within == ("inner.8",)


def test_where_none_has_enough_the_largest_gives_all_that_live(limit: Callable[[float], None]) -> None:
    every = affordable_places(context_of(1000)).places
    limit((every[0].cost + every[1].cost) / 2)
    chosen = select("auto", context_of(1000), {})
    assert chosen.explanation is not None
    assert chosen.explanation.startswith("all live weights of '8', about ")
    assert len(chosen.indices) + (chosen.dead_weights or 0) == 52


def test_the_choice_is_that_of_the_seed() -> None:
    first, again, other = (select("auto", context_of(20, seed=seed), {}).indices for seed in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


@pytest.mark.usefixtures("limit")
def test_dead_weights_are_left_out() -> None:
    model, batches = dead_problem()
    chosen = select("auto", context(model, batches, 65, 3), {})
    assert not set(chosen.indices.tolist()) & DEAD
    assert chosen.dead_weights == len(DEAD)


@pytest.mark.usefixtures("limit")
def test_a_network_whose_outputs_do_not_move_is_refused() -> None:
    with pytest.raises(ValueError, match=r"selection='auto': found \d+ weights and none with curvature"):
        select("auto", context_of(model=Constant()), {})


class Constant(nn.Module):
    """Weights that move nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(64, 4)

    def forward(self, x: Tensor) -> Tensor:
        return 0.0 * self.last(x.flatten(1))


def test_it_has_no_options() -> None:
    with pytest.raises(ValueError, match="selection_options: found 'strategies'"):
        check_options("auto", {"strategies": ["random"]})


def test_a_clock_that_lies_changes_no_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    usual = select("auto", context_of(), {})
    ticks = itertools.count()
    for name in ("perf_counter", "thread_time", "process_time", "monotonic", "time"):
        monkeypatch.setattr(time, name, lambda: float(next(ticks) ** 2))
    busy = select("auto", context_of(), {})
    assert busy.to_json() == usual.to_json()
    assert torch.equal(busy.indices, usual.indices)


def test_what_is_drawn_is_uniform_and_ascending() -> None:
    positions = torch.arange(0, 3000, 3)
    found = drawn(positions, 100, 0)
    assert len(found) == 100
    assert torch.isin(found, positions).all()
    assert bool((found.diff() > 0).all())
    assert float(found.double().mean()) == pytest.approx(1500, rel=0.2)
    assert torch.equal(drawn(positions, 1000, 0), positions)
