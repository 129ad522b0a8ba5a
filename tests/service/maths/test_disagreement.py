"""service/maths/disagreement.py: what counts as another answer, and intervals of shares and means."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from demur.service.maths.disagreement import Differences, mean_interval, share_interval

ACCEPTED, HALF = np.zeros(2, bool), np.full(2, 0.5)


def answer(**arrays: Any) -> dict[str, Any]:
    return {"rejected": ACCEPTED, "p_value": HALF} | {name: np.asarray(value) for name, value in arrays.items()}


@pytest.mark.parametrize(
    ("first", "second", "multilabel", "changed"),
    [
        ({"probabilities": [[0.9, 0.1], [0.6, 0.4]]}, {"probabilities": [[0.6, 0.4], [0.4, 0.6]]}, False, [0, 1]),
        ({"probabilities": [[0.9, 0.6], [0.6, 0.4]]}, {"probabilities": [[0.6, 0.9], [0.6, 0.5]]}, True, [0, 1]),
        (
            {"mean": [[0.0, 1.0], [0.0, 1.0]], "std": [[1.0, 0.1], [1.0, 0.1]]},
            {"mean": [[0.9, 1.0], [0.0, 1.2]], "std": [[9.0, 9.0], [9.0, 9.0]]},
            False,
            [0, 1],
        ),
    ],
)
def test_another_answer(first: Any, second: Any, multilabel: bool, changed: list[int]) -> None:
    assert Differences.of(answer(**first), answer(**second), multilabel).changed.tolist() == changed


def test_rejections_p_values_and_sums() -> None:
    p = [[0.9, 0.1]] * 2
    one = answer(probabilities=p, rejected=[True, False], p_value=[0.01, 0.5])
    other = answer(probabilities=p, rejected=[False, True], p_value=[0.11, 0.1])
    found = Differences.of(one, other, False)
    assert (found.newly_rejected.tolist(), found.newly_accepted.tolist()) == ([False, True], [True, False])
    assert found.sums() == pytest.approx(
        {"changed": 0, "newly_rejected": 1, "newly_accepted": 1, "p_value_distance": 0.5}
    )
    both = Differences.concatenate([found, found])
    assert len(both) == 4
    assert both.sums()["p_value_distance"] == pytest.approx(1.0)


@pytest.mark.parametrize("other", [{"probabilities": [[0.9, 0.1, 0.0]] * 2}, {"mean": [[0.0]] * 2}])
def test_other_shapes_are_refused(other: Any) -> None:
    with pytest.raises(ValueError, match="expected the same"):
        Differences.of(answer(probabilities=[[0.9, 0.1]] * 2), answer(**other), False)


@given(st.integers(1, 10**6), st.data())
def test_the_interval_holds_the_share(examples: int, data: Any) -> None:
    count = data.draw(st.integers(0, examples))
    low, high = share_interval(count, examples)
    assert 0 <= low <= count / examples + 1e-12
    assert count / examples - 1e-12 <= high <= 1


def test_intervals_as_tables_have_them() -> None:
    assert share_interval(10, 100) == pytest.approx((0.0552, 0.1744), abs=1e-4)
    assert mean_interval(np.array([0.0, 1.0])) == pytest.approx((0.5 - 1.96 / 2, 0.5 + 1.96 / 2))
    assert mean_interval(np.array([1.0])) == (-np.inf, np.inf)
