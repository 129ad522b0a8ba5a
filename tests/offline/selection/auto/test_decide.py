"""The rule of `auto`: the best candidate within the budget, the cheaper of those nearly as good, and its words."""

import math
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from offline.export.price import Price
from offline.jacobian.output_rule import OutputRule
from offline.selection.auto.choose import MARGIN, decide, explain, merit, nearly_best
from offline.selection.auto.context import Proposal
from offline.selection.auto.price import measured
from offline.selection.subnetwork import CandidateScore, Subnetwork
from tests.support.auto_selection import BUDGET, context_of


def score_of(ll: float, auroc: float = 1.0, passes: float = 2.0, cost: float = 0.0, name: str = "x") -> CandidateScore:
    return CandidateScore(name, 10, 10, passes, 1.0, cost, -0.1, ll, auroc)


@pytest.mark.parametrize(
    ("scores", "place"),
    [
        ([score_of(-2), score_of(-1), score_of(-3)], 1),
        ([score_of(-1, passes=9), score_of(-1, passes=2)], 1),  # the cheaper wins a tie
        ([score_of(-1, passes=9), score_of(-1 - 0.9 * MARGIN, passes=2)], 1),  # and where it is nearly as good
        ([score_of(-1, passes=9), score_of(-1 - 1.1 * MARGIN, passes=2)], 0),
        ([score_of(-1.01), score_of(-1.0)], 1),  # at the same price, the better
        ([score_of(-1), score_of(-1)], 0),
        ([score_of(-1, auroc=0.4), score_of(-1.5, auroc=0.95)], 1),  # worse than chance at telling shifts
        ([score_of(-1, cost=0.2), score_of(-2)], 1),  # beyond the budget
        ([score_of(-1, cost=0.2), score_of(-2, cost=0.3)], 0),  # unless all are
    ],
)
def test_the_rule(scores: list[CandidateScore], place: int) -> None:
    assert nearly_best(scores, BUDGET, range(len(scores)))[0] == place


@given(
    st.lists(st.tuples(st.floats(-9, 3), st.floats(0, 1), st.floats(1, 20), st.floats(0, 0.1)), min_size=1, max_size=8)
)
def test_what_is_chosen_is_near_the_best_and_no_near_one_is_cheaper(
    values: list[tuple[float, float, float, float]],
) -> None:
    scores = tuple(score_of(*value) for value in values)
    place = nearly_best(scores, BUDGET, range(len(scores)))[0]
    allowed = [s for s in scores if s.cost <= BUDGET] or list(scores)
    best = max(map(merit, allowed))
    assert scores[place] in allowed
    assert merit(scores[place]) >= best - MARGIN
    cheaper = [s for s in allowed if round(s.forward_passes, 1) < round(scores[place].forward_passes, 1)]
    assert not any(merit(s) >= best - MARGIN for s in cheaper)


def test_merit_is_in_nats() -> None:
    assert merit(score_of(-1.5, auroc=0.5)) == pytest.approx(-1.5 + math.log(0.5))
    assert math.isfinite(merit(score_of(-1.5, auroc=0.0)))


def test_the_words() -> None:
    scores = (score_of(-1.1, 0.97, 1.9, name="last"), score_of(-1.13, 0.97, 11, name="gradient"))
    assert explain(scores, 0, ("noise",), ("blur", "rotation-45", "rotation-90")) == (
        "last: log-likelihood under blur, rotation-45 and rotation-90 -1.10 (next best -1.13, gradient), AUROC 0.97, "
        "1.9 forward passes an example; strategies chose weights by noise"
    )
    assert "(best -1.10, last)" in explain(scores, 1, ("noise",), ("blur",))
    assert explain(scores[:1], 0, ("noise", "blur"), ("noise", "blur")) == (
        "last: log-likelihood under noise and blur -1.10, AUROC 0.97, 1.9 forward passes an example; strategies chose "
        "weights by the same shifts"
    )


def candidates() -> list[Proposal]:
    """Each in a part of the network of its own, but for the first two."""
    parts = ("head", "head", "block", "all")
    return [Proposal(part, Subnetwork(torch.tensor([c]), within=(part,)), 1.0) for c, part in enumerate(parts)]


def clock(prices: dict[int, float], asked: list[int]) -> Callable[[Tensor, OutputRule], Price]:
    """Stands for the time of a graph, by the only weight of the candidate."""

    def measure(indices: Tensor, rule: OutputRule) -> Price:
        asked.append(int(indices))
        return Price(2 * prices[int(indices)], prices[int(indices)])

    return measure


SCORES = (score_of(-1, passes=1.1), score_of(-1.001, passes=1.1), score_of(-1, passes=2.0), score_of(-1, passes=9.0))


def decided(
    scores: tuple[CandidateScore, ...], prices: dict[int, float], max_cost: float | None
) -> tuple[int, list[int]]:
    """The place chosen, and whose graphs were timed."""
    asked: list[int] = []
    context = replace(context_of("table", strategies=(), max_cost=max_cost), measure=clock(prices, asked))
    place, found = decide(context, candidates(), scores)
    assert {c: price.weighed for c, price in found.items()} == {c: prices[c] for c in asked}
    return place, asked


def test_of_those_alike_the_cheapest_by_the_clock_is_taken() -> None:
    assert decided(SCORES, {0: 5.0, 2: 2.5, 3: 8.0}, 1000.0) == (2, [0, 2, 3])  # one for each counted cost


@pytest.mark.parametrize("limit", [2.0, None])
def test_where_the_best_are_too_dear_the_best_of_the_others_is_taken(limit: float | None) -> None:
    scores = (
        score_of(-2.0, passes=1.1),
        score_of(-3.0, passes=1.1),
        score_of(-1, passes=2.0),
        score_of(-9, passes=2.0),
    )
    assert decided(scores, {0: 1.5, 2: 30.0}, limit) == (0, [2, 0])


def test_where_nothing_keeps_to_the_users_limit_the_error_names_the_least() -> None:
    with pytest.raises(ValueError, match=r"max_cost: found 2 forward passes, expected at least 3\.2, the"):
        decided(SCORES, {0: 4.5, 2: 3.25, 3: 9.0}, 2.0)


def test_without_a_limit_of_the_users_the_least_is_taken() -> None:
    assert decided(SCORES, {0: 4.5, 2: 3.5, 3: 9.0}, None) == (2, [0, 2, 3])


def test_without_a_clock_the_count_decides() -> None:
    context = context_of("table", strategies=())
    assert decide(context, candidates(), SCORES) == (0, {})


def test_the_price_of_a_graph_is_measured_for_real() -> None:
    context = context_of("table", strategies=())
    example = context.tuning.inputs[:1]
    price = measured(context.job, context.live, context.job.rule, example)
    assert 1 < price.weighed <= price.passes
