"""service/monitoring/background.py: what waits is bounded, in pieces and in numbers, and is written in batches."""

import errno
import logging
import queue
import weakref
from collections.abc import Sequence
from functools import partial

import pytest
from prometheus_client import CollectorRegistry, Counter

from demur.service.monitoring.background import BATCH, BATCH_NUMBERS, QUEUED, QUEUED_NUMBERS, BackgroundThread, Work
from tests.support.freed import Held, uncollected
from tests.support.processes import wait_until

NEVER = 3600.0


class Disk:
    """Keeps the batches that it is given."""

    def __init__(self) -> None:
        self.batches = queue.SimpleQueue[list[str]]()

    def write(self, several: Sequence[str]) -> None:
        if several[0] == "bad":
            raise OSError(errno.ENOSPC, "No space left on device")
        self.batches.put([*several])


@pytest.fixture
def disk() -> Disk:
    return Disk()


@pytest.fixture
def lost() -> Counter:
    return Counter("lost", "Lost.", registry=CollectorRegistry())


def background(disk: Disk, lost: Counter, gather: float = NEVER) -> BackgroundThread[str]:
    return BackgroundThread("demur-test", "Things", lost, disk.write, gather)


def piece(text: str, numbers: int = 0) -> Work[str]:
    return Work(lambda: text, 1, numbers)


def count(lost: Counter) -> float:
    (family,) = lost.collect()
    return next(sample.value for sample in family.samples if sample.name.endswith("_total"))


def has_lost(lost: Counter, expected: float) -> bool:
    return count(lost) == expected


def test_so_many_pieces_wait(disk: Disk, lost: Counter) -> None:
    thread = background(disk, lost)
    accepted = [thread.note(piece("a")) for _ in range(QUEUED + 3)]
    assert sum(accepted) == QUEUED
    thread.start()
    assert thread.close()
    assert sum(len(disk.batches.get_nowait()) for _ in range(disk.batches.qsize())) == QUEUED
    assert count(lost) == 3


def test_so_many_numbers_wait_but_one_piece_of_any_size(disk: Disk, lost: Counter) -> None:
    thread = background(disk, lost)
    assert thread.note(piece("large", 5 * QUEUED_NUMBERS))
    assert not thread.note(piece("small", 1))
    assert thread.note(piece("none"))
    thread.start()
    assert disk.batches.get(timeout=10) == ["large"]
    assert thread.note(piece("later", QUEUED_NUMBERS))
    assert thread.close()
    written = [text for _ in range(disk.batches.qsize()) for text in disk.batches.get_nowait()]
    assert written == ["none", "later"]


def test_closing_writes_what_waits_at_once(disk: Disk, lost: Counter) -> None:
    thread = background(disk, lost)
    thread.start()
    thread.note(piece("a"))
    assert thread.close()
    assert disk.batches.get_nowait() == ["a"]


def test_a_thread_that_waits_holds_nothing(disk: Disk, lost: Counter) -> None:
    thread, held = background(disk, lost, gather=0.001), Held()
    thread.start()
    thread.note(Work(partial(lambda _: "a", held), 1))
    found = weakref.ref(held)
    del held
    with uncollected():
        wait_until(lambda: found() is None)
    assert thread.close()


def test_a_piece_waits_for_others_only_so_long(disk: Disk, lost: Counter) -> None:
    thread = background(disk, lost, gather=0.001)
    thread.start()
    for text in ("a", "b"):
        thread.note(piece(text))
        assert disk.batches.get(timeout=10) == [text]
    assert thread.close()


@pytest.mark.parametrize(("pieces", "numbers"), [(BATCH, 0), (2, BATCH_NUMBERS // 2)])
def test_a_batch_that_is_full_waits_no_longer(disk: Disk, lost: Counter, pieces: int, numbers: int) -> None:
    thread = background(disk, lost)
    thread.start()
    for number in range(pieces):
        thread.note(piece(f"{number}", numbers))
    assert disk.batches.get(timeout=10) == [f"{number}" for number in range(pieces)]
    thread.note(piece("the next batch"))
    assert thread.close()
    assert disk.batches.get_nowait() == ["the next batch"]


def test_a_batch_that_cannot_be_written_is_lost_and_logged_until_one_can(
    disk: Disk, lost: Counter, caplog: pytest.LogCaptureFixture
) -> None:
    thread = background(disk, lost)
    thread.start()
    for texts, losses in ((("bad", "b"), 2), (("bad",), 3), (("good",), 3), (("bad", "b", "c"), 6)):
        for text in texts:  # the last one fills the batch
            thread.note(piece(text, BATCH_NUMBERS if text == texts[-1] else 0))
        if texts == ("good",):
            assert disk.batches.get(timeout=10) == ["good"]
        wait_until(partial(has_lost, lost, losses))
    assert thread.close()
    assert count(lost) == 6
    assert [record.levelno for record in caplog.records] == [logging.ERROR] * 2
    assert "Things are lost: No space left on device" in caplog.text


def test_a_piece_that_cannot_be_made_costs_no_other(
    disk: Disk, lost: Counter, caplog: pytest.LogCaptureFixture
) -> None:
    thread = background(disk, lost)
    for work in (piece("a"), Work(lambda: f"{1 // 0}", 3), piece("b")):
        thread.note(work)
    thread.start()
    assert thread.close()
    assert disk.batches.get_nowait() == ["a", "b"]
    assert count(lost) == 3
    assert "ZeroDivisionError" in caplog.text
