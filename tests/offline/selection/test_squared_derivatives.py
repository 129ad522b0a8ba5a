"""The pool of weights that a strategy looks at."""

from dataclasses import replace

import pytest
import torch

from demur.offline.selection.squared_derivatives import pooled
from tests.offline.selection.test_places import context_of
from tests.support.selections import changed


def test_a_pool_is_uniform_and_that_of_a_part_agrees() -> None:
    given = context_of()
    everything = given.candidate_weights
    part = everything[500:1500]
    whole_pool, part_pool = pooled(given, everything, 300), pooled(given, part, 200)
    assert len(whole_pool) == 300
    assert len(part_pool) == 200
    common = whole_pool[torch.isin(whole_pool, part)]
    assert torch.isin(common, part_pool).all()
    assert torch.equal(pooled(given, everything, None), everything)
    other = pooled(replace(given, job=changed(given.job, seed=1)), everything, 300)
    assert not torch.equal(other, whole_pool)
    assert float(whole_pool.double().mean()) == pytest.approx(len(everything) / 2, rel=0.1)
