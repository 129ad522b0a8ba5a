"""The byte budget: requests that wait for room elsewhere leave half of it to those that need not."""

from contextlib import ExitStack

import pytest

from demur.service.http.admission import ByteBudget
from demur.service.http.problems import ProblemError


def test_those_that_wait_keep_half_of_the_budget() -> None:
    budget = ByteBudget(100)
    with ExitStack() as stack:
        first, second, third = (stack.enter_context(budget.lease()) for _ in range(3))
        for lease in (first, second):
            lease.grow(30)
        with first.waiting() as stays:
            assert stays
            with second.waiting() as other:
                assert not other
                assert (budget.used, budget.waiting) == (30, 30)
            third.grow(70)
            with pytest.raises(ProblemError):
                second.grow(1)
        assert (budget.used, budget.waiting) == (100, 0)
        with third.waiting() as stays:
            assert not stays
    assert (budget.used, budget.waiting) == (0, 0)
