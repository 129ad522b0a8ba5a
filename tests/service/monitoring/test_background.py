"""service/monitoring/background.py: what waits is bounded, in pieces and in numbers."""

import threading

import pytest
from prometheus_client import CollectorRegistry, Counter

from service.monitoring.background import QUEUED, QUEUED_NUMBERS, BackgroundThread, Work


@pytest.fixture
def thread() -> BackgroundThread:
    return BackgroundThread("probity-test", "Things", Counter("lost", "Lost.", registry=CollectorRegistry()))


def test_so_many_pieces_wait(thread: BackgroundThread) -> None:
    accepted = [thread.note(Work(lambda: None, 1)) for _ in range(QUEUED + 3)]
    assert sum(accepted) == QUEUED
    thread.start()
    assert thread.close()


def test_so_many_numbers_wait_but_one_piece_of_any_size(thread: BackgroundThread) -> None:
    done = []
    large = Work(lambda: done.append("large"), 1, 5 * QUEUED_NUMBERS)
    assert thread.note(large)
    assert not thread.note(Work(lambda: done.append("small"), 1, 1))
    assert thread.note(Work(lambda: done.append("none"), 1))
    thread.start()
    thread.settle(10)
    assert thread.note(Work(lambda: done.append("later"), 1, QUEUED_NUMBERS))
    assert thread.close()
    assert done == ["large", "none", "later"]


def test_settling_waits_for_what_came_before(thread: BackgroundThread) -> None:
    go, done = threading.Event(), []

    def slow() -> None:
        assert go.wait(10)
        done.append(1)

    thread.start()
    thread.note(Work(slow, 1))
    go.set()
    thread.settle(10)
    assert done == [1]
    assert thread.close()
