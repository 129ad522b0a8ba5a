"""Which rows go next: rows are counted, requests split; nothing is lost or doubled."""

import itertools
import math

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from demur.service.batching import DeadlineExceeded, Limits, QueueFull
from demur.service.batching.queue import Item, RowQueue


def queue(batch: int = 4, most: int = 10, at_once: int = 1) -> RowQueue:
    return RowQueue(Limits(batch, most, at_once))


def taken(rows: RowQueue, now: float = 0.0, most: int | None = None) -> list[tuple[int, int, int]]:
    return [(piece.item.rows, piece.start, piece.stop) for piece in rows.take(now, most=most).pieces]


def test_small_requests_share_a_batch_and_a_large_one_is_split() -> None:
    rows = queue()
    for size in (1, 2, 6):
        rows.admit(Item(size), 0.0)
    assert taken(rows) == [(1, 0, 1), (2, 0, 2), (6, 0, 1)]
    assert rows.rows == 5
    assert taken(rows) == [(6, 1, 5)]
    assert taken(rows) == [(6, 5, 6)]
    assert taken(rows) == []


def test_an_oversized_request_takes_turns_with_those_that_wait() -> None:
    rows = queue(most=30)
    for size in (10, 3, 2):
        rows.admit(Item(size), 0.0)
    assert taken(rows) == [(10, 0, 4)]
    rows.admit(Item(4), 0.0)
    assert taken(rows) == [(3, 0, 3), (2, 0, 1)]
    assert taken(rows) == [(2, 1, 2), (10, 4, 7)]  # only what a batch cannot hold goes behind the others
    assert taken(rows) == [(4, 0, 4)]
    assert taken(rows) == [(10, 7, 10)]


def test_a_batch_may_have_fewer_rows_than_the_limit_for_once() -> None:
    rows = queue(batch=8)
    for size in (3, 3):
        rows.admit(Item(size), 0.0)
    assert taken(rows, most=2) == [(3, 0, 2)]
    assert taken(rows, most=2) == [(3, 0, 2)]  # what it cannot hold goes behind the others here too
    assert taken(rows, most=99) == [(3, 2, 3), (3, 2, 3)]


def test_there_is_room_beside_what_waits_and_what_is_decoded() -> None:
    rows = queue(most=5)
    assert rows.has_room(99)  # for one alone, whatever it is
    rows.promised = 99
    assert not rows.has_room(1)
    full = rows.full(7.0)
    assert (full.rows, full.limit, full.retry_after_seconds) == (99, 5, 7.0)
    rows.promised = 2
    rows.admit(Item(2), 0.0)
    assert rows.has_room(1)
    assert not rows.has_room(2)
    rows.admit(Item(3), 0.0)  # who has decoded is not refused for those who have not
    with pytest.raises(QueueFull):
        rows.admit(Item(1), 0.0)


def test_the_bound_counts_rows() -> None:
    rows = queue(most=5)
    rows.admit(Item(3), 0.0)
    with pytest.raises(QueueFull) as full:
        rows.admit(Item(3), 0.0, 7.0)
    assert (full.value.rows, full.value.limit, full.value.retry_after_seconds) == (3, 5, 7.0)
    rows.admit(Item(2), 0.0)
    assert rows.rows == 5


def test_a_request_larger_than_the_queue_enters_an_empty_one_only() -> None:
    rows = queue(most=5)
    rows.admit(Item(9), 0.0)
    with pytest.raises(QueueFull):
        rows.admit(Item(1), 0.0)


@pytest.mark.parametrize(("deadline", "fine"), [(1.0, False), (0.5, False), (1.1, True)])
def test_a_deadline_that_has_passed_is_refused_at_admission(deadline: float, fine: bool) -> None:
    rows = queue()
    if fine:
        rows.admit(Item(1, deadline=deadline), 1.0)
    else:
        with pytest.raises(DeadlineExceeded):
            rows.admit(Item(1, deadline=deadline), 1.0)
    assert len(rows) == fine


def test_a_deadline_that_has_passed_is_found_at_dispatch() -> None:
    rows = queue()
    late, fine = Item(2, deadline=1.0), Item(2)
    rows.admit(late, 0.0)
    rows.admit(fine, 0.0)
    take = rows.take(1.0)
    assert take.expired == [late]
    assert [piece.item for piece in take.pieces] == [fine]
    assert rows.rows == 0


def test_what_is_discarded_is_never_handed_out() -> None:
    rows = queue(batch=2)
    first, second = Item(3), Item(1)
    rows.admit(first, 0.0)
    rows.admit(second, 0.0)
    assert taken(rows) == [(3, 0, 2)]
    assert rows.discard(first)
    assert not rows.discard(first)
    assert rows.rows == 1
    assert taken(rows) == [(1, 0, 1)]


def test_what_is_gone_is_discarded_without_being_printed() -> None:
    class Large(Item):
        def __repr__(self) -> str:
            raise AssertionError("its inputs and results would be printed")

    rows, gone = queue(), Large(1)
    rows.admit(gone, 0.0)
    assert taken(rows) == [(1, 0, 1)]
    assert not rows.discard(gone)


def test_batches_at_once_divide_what_waits_by_whole_requests() -> None:
    rows = queue(batch=64, most=999, at_once=2)
    for size in (10, 10, 10, 10):
        rows.admit(Item(size), 0.0)
    assert taken(rows) == [(10, 0, 10), (10, 0, 10)]
    assert taken(rows) == [(10, 0, 10)]
    rows.admit(Item(10), 0.0)
    assert taken(rows) == [(10, 0, 10)]


def test_batches_at_once_divide_a_request_that_waits_alone() -> None:
    rows = queue(batch=64, most=999, at_once=4)
    rows.admit(Item(64), 0.0)
    assert [taken(rows) for _ in range(5)] == [[(64, start, start + 16)] for start in (0, 16, 32, 48)] + [[]]
    rows.admit(Item(400), 0.0)
    assert taken(rows) == [(400, 0, 64)]


def test_few_rows_are_not_divided() -> None:
    rows = queue(batch=64, most=999, at_once=4)
    rows.admit(Item(8), 0.0)
    assert taken(rows) == [(8, 0, 8)]
    for _ in range(7):
        rows.admit(Item(1), 0.0)
    assert len(taken(rows)) == 7


@pytest.mark.parametrize("limits", [(0, 1, 1), (1, 0, 1), (1, 1, 0)])
def test_limits_are_checked(limits: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match="at least 1 each"):
        Limits(*limits)


class Rows(RuleBasedStateMachine):
    """Every row is handed out once and in order, or never, where its request was discarded or its time is over."""

    @initialize(
        batch=st.integers(1, 5) | st.just(20),
        most=st.integers(1, 12) | st.just(90),
        at_once=st.integers(1, 3),
    )
    def begin(self, batch: int, most: int, at_once: int) -> None:
        self.batch, self.most, self.now = batch, most, 0.0
        self.queue = RowQueue(Limits(batch, most, at_once=at_once))
        self.admitted: list[Item] = []
        self.handed: dict[Item, list[tuple[int, int]]] = {}
        self.out: set[Item] = set()

    @rule(rows=st.integers(1, 40), seconds=st.one_of(st.just(math.inf), st.floats(0.1, 5)))
    def admit(self, rows: int, seconds: float) -> None:
        item, waiting = Item(rows, deadline=self.now + seconds), self.queue.rows
        try:
            self.queue.admit(item, self.now)
            self.admitted.append(item)
        except QueueFull:
            assert waiting + rows > self.most

    @rule()
    def take(self) -> None:
        found = self.queue.take(self.now)
        assert sum(piece.rows for piece in found.pieces) <= self.batch
        self.out.update(found.expired)
        for piece in found.pieces:
            assert piece.item not in self.out
            self.handed.setdefault(piece.item, []).append((piece.start, piece.stop))

    @rule(number=st.integers(0, 20))
    def discard(self, number: int) -> None:
        if number < len(self.admitted) and self.queue.discard(self.admitted[number]):
            self.out.add(self.admitted[number])

    @rule(seconds=st.integers(1, 3))
    def wait(self, seconds: int) -> None:
        self.now += seconds

    @invariant()
    def rows_are_counted(self) -> None:
        if hasattr(self, "queue"):
            assert self.queue.rows == sum(item.waiting for item in self.admitted if item not in self.out)

    def teardown(self) -> None:
        if not hasattr(self, "queue"):
            return
        while len(self.queue):
            self.take()
        for item in self.admitted:
            self._check(item, self.handed.get(item, []))

    def _check(self, item: Item, parts: list[tuple[int, int]]) -> None:
        assert all(stop == start for (_, stop), (start, _) in itertools.pairwise(parts))
        if item not in self.out:
            assert (parts[0][0], parts[-1][1]) == (0, item.rows)


TestRows = Rows.TestCase
