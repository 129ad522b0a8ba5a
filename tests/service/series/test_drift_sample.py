"""What the test for drift sees: a fair part of each window, of no request more than its share, and no copies."""

import numpy as np
import pytest

from demur.service.series.drift_sample import OF_A_REQUEST, REMEMBERED, TESTED, WHOLE, DriftSample

DIFFERENT = np.linspace(0, 1, 500)


def sample(held_out: np.ndarray = DIFFERENT) -> DriftSample:
    return DriftSample(held_out, np.random.default_rng(0))


def numbered(start: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
    """Inputs and scores that tell them apart."""
    scores = np.arange(start, stop, dtype=float)
    return scores[:, None] * np.ones(3), scores


def test_all_are_taken_in_their_order_where_there_are_few() -> None:
    chosen = sample()
    for start in range(0, 20, 4):
        chosen.offer(*numbered(start, start + 4))
    assert chosen.take().tolist() == [*range(20)]
    assert len(chosen.take()) == 0  # another window


def test_of_a_large_request_some_are_taken_at_random() -> None:
    chosen, counts = sample(), np.zeros(128)
    for _ in range(400):
        chosen.offer(np.random.default_rng().random((128, 3)), np.arange(128.0))
        found = chosen.take().astype(int)
        assert len(found) == OF_A_REQUEST
        assert sorted(found) == found.tolist()
        counts[found] += 1
    assert counts.min() > 5  # 31 on average
    assert counts.max() < 80


def test_of_a_full_window_each_has_the_same_chance() -> None:
    counts = np.zeros(5 * TESTED)
    for seed in range(300):
        chosen = DriftSample(DIFFERENT, np.random.default_rng(seed))
        for one in range(5 * TESTED):
            chosen.offer(*numbered(one, one + 1))
        found = chosen.take().astype(int)
        assert len(found) == TESTED
        counts[found] += 1
    assert abs(counts[:TESTED].mean() - 60) < 5
    assert abs(counts[-TESTED:].mean() - 60) < 5


@pytest.mark.parametrize("entries", [3, 10 * WHOLE])
def test_an_input_counts_once(entries: int) -> None:
    chosen, inputs = sample(), np.random.default_rng(1).random((4, entries))
    chosen.offer(inputs, np.arange(4.0))
    chosen.offer(inputs[::-1].copy(), np.arange(4.0))
    inputs[0, entries // 2 + 1] += 1e-3
    chosen.offer(inputs[:1], np.array([7.0]))
    assert chosen.take().tolist() == [0, 1, 2, 3, 7]


def test_no_more_are_remembered_than_may() -> None:
    chosen = sample()
    for start in range(0, REMEMBERED + 1, OF_A_REQUEST):
        chosen.offer(*numbered(start, start + OF_A_REQUEST))
    chosen.take()
    chosen.offer(*numbered(0, 1))  # forgotten
    chosen.offer(*numbered(REMEMBERED - 1, REMEMBERED))  # not yet
    assert chosen.take().tolist() == [0]


def test_copies_are_ordinary_where_held_out_inputs_have_them_too() -> None:
    chosen = sample(np.repeat(DIFFERENT[:50], 10))
    for _ in range(3):
        chosen.offer(*numbered(0, 2))
    assert chosen.take().tolist() == [0, 1, 0, 1, 0, 1]
