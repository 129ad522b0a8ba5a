"""The rule of `auto`: the best candidate within the budget, the cheaper of those nearly as good, and its words."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offline.selection.auto.choose import MARGIN, explain, merit, nearly_best
from offline.selection.subnetwork import CandidateScore
from tests.support.auto_selection import BUDGET


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
    assert nearly_best(scores, BUDGET)[0] == place


@given(
    st.lists(st.tuples(st.floats(-9, 3), st.floats(0, 1), st.floats(1, 20), st.floats(0, 0.1)), min_size=1, max_size=8)
)
def test_what_is_chosen_is_near_the_best_and_no_near_one_is_cheaper(
    values: list[tuple[float, float, float, float]],
) -> None:
    scores = tuple(score_of(*value) for value in values)
    place = nearly_best(scores, BUDGET)[0]
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
