"""With little effort, `auto` looks where no output needs a backward pass of its own, and says what it left out."""

import itertools
import time
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from offline.selection.auto.choose import LEFT_OUT, choose_automatically
from offline.selection.auto.context import QUICK_JUDGED_EXAMPLES, QUICK_TRAINING_EXAMPLES, AutoOptions
from offline.selection.auto.places import QUICK_PLACES, affordable_places, drawn
from offline.selection.context import SelectionContext
from tests.support.auto_selection import context_of, explanation_of, image_data, image_network
from tests.support.selections import context as selection_context


class AppendsZero(nn.Module):
    """A network whose outputs are those of no layer."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = image_network()

    def forward(self, x: Tensor) -> Tensor:
        outputs: Tensor = self.inner(x)
        return torch.cat([outputs, torch.zeros_like(outputs[:, :1])], dim=1)


def searched(model: nn.Module, outputs: int, **changes: Any) -> SelectionContext:
    inputs, targets = image_data(60, 0)
    train = list(zip(inputs.split(25), targets.split(25), strict=True))
    return selection_context(model, train, 20, outputs, **{"max_cost": 1000.0, **changes})


@pytest.mark.parametrize(
    ("effort", "modules"), [("quick", [("8",), ("6", "8")]), ("thorough", [("8",), ("6", "8"), ("3", "6", "8"), None])]
)
def test_places_without_a_backward_pass_for_each_output(effort: str, modules: list[tuple[str, ...] | None]) -> None:
    torch.manual_seed(0)
    places, prices, _ = affordable_places(searched(image_network(), 4, effort=effort))
    assert [place.modules for place in places] == modules
    closed = [prices.touched(place.positions).is_closed for place in places]
    assert closed == [True, True, False, False][: len(modules)]


def test_a_network_without_a_linear_head_has_its_last_modules() -> None:
    torch.manual_seed(0)
    places, prices, _ = affordable_places(searched(AppendsZero(), 5, effort="quick"))
    assert [place.modules for place in places] == [("inner.8",), ("inner.6", "inner.8")]
    assert len(places) == QUICK_PLACES
    assert not any(prices.touched(place.positions).is_closed for place in places)


def test_the_limit_bounds_the_last_modules_too() -> None:
    torch.manual_seed(0)
    context = searched(AppendsZero(), 5, effort="quick")
    every, prices, _ = affordable_places(context)
    costs = [prices.cheapest(drawn(place.positions, 20, context.job.config.seed)) for place in every]
    assert costs[0] < costs[1]
    torch.manual_seed(0)
    cheap, _, _ = affordable_places(searched(AppendsZero(), 5, effort="quick", max_cost=sum(costs) / 2))
    assert [place.modules for place in cheap] == [("inner.8",)]


def test_less_data_unless_the_user_gives_a_number() -> None:
    quick, thorough = AutoOptions.of("quick", {}), AutoOptions.of("thorough", {})
    assert (quick.training_examples, quick.judged_examples) == (QUICK_TRAINING_EXAMPLES, QUICK_JUDGED_EXAMPLES)
    assert thorough == AutoOptions()
    assert AutoOptions.of("quick", {"judged_examples": 7}).judged_examples == 7


def test_what_was_left_out_is_said_in_one_line() -> None:
    quick, thorough = (choose_automatically(context_of("images", effort=effort)) for effort in ("quick", "thorough"))
    assert explanation_of(quick).endswith(LEFT_OUT)
    assert "effort" not in explanation_of(thorough)
    assert {score.name for score in quick.candidates} < {score.name for score in thorough.candidates}


def test_nothing_is_left_out_where_the_rest_is_too_dear() -> None:
    torch.manual_seed(0)
    free = affordable_places(searched(image_network(), 4, effort="quick"))
    assert free.left_out
    costs = [free.prices.cheapest(drawn(place.positions, 20, 0)) for place in free.places]
    torch.manual_seed(0)
    assert not affordable_places(searched(image_network(), 4, effort="quick", max_cost=max(costs))).left_out


def test_a_clock_that_lies_changes_no_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    usual = choose_automatically(context_of("images", effort="quick", measure_price=True))
    ticks = itertools.count()
    for name in ("perf_counter", "thread_time", "process_time", "monotonic", "time"):
        monkeypatch.setattr(time, name, lambda: float(next(ticks) ** 2))
    busy = choose_automatically(context_of("images", effort="quick", measure_price=True))
    assert busy.to_json() == usual.to_json()
    assert torch.equal(busy.indices, usual.indices)
