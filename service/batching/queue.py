"""Choose the rows of the next batch. Pure scheduling: no threads, no event loop, and time is an argument."""

import math
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from .errors import DeadlineExceeded, QueueFull

FEW_ROWS = 8  # splitting fewer rows among parallel batches saves no time: each takes nearly as long as one batch


@dataclass(frozen=True)
class Limits:
    """batch_rows: most rows in one batch; queue_rows: most rows that may wait; at_once: how many batches compute side
    by side."""

    batch_rows: int
    queue_rows: int
    at_once: int = 1

    def __post_init__(self) -> None:
        if min(self.batch_rows, self.queue_rows, self.at_once) < 1:
            raise ValueError(f"found {self}, expected at least 1 each")


@dataclass(eq=False)
class Item:
    """One request's place in the queue. `taken` of its `rows` were handed out."""

    rows: int
    admitted: float = 0.0
    deadline: float = math.inf
    taken: int = 0

    @property
    def waiting(self) -> int:
        """Rows not handed out yet."""
        return self.rows - self.taken


@dataclass(frozen=True)
class Piece:
    """Rows `start` to `stop` of a request."""

    item: Item
    start: int
    stop: int

    @property
    def rows(self) -> int:
        """How many."""
        return self.stop - self.start


@dataclass(frozen=True)
class NextBatch:
    """The next batch: its pieces, and the requests whose deadlines have passed."""

    pieces: list[Piece] = field(default_factory=list)
    expired: list[Item] = field(default_factory=list)

    @property
    def rows(self) -> int:
        """How many it has."""
        return sum(piece.rows for piece in self.pieces)


class RowQueue:
    """Requests in the order of their arrival, counted in rows.

    A request with more rows than a batch is split, and goes to the end of the queue after each batch: it takes turns
    with the others instead of making them wait until it is done.

    Where several batches are computed at once, each takes whole requests up to its share of the waiting rows, and a
    request that waits alone is divided among them: otherwise one compute thread would be busy while the next one idles.
    """

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.rows = self.promised = 0  # that wait, and of requests that are decoded
        self._items: deque[Item] = deque()

    def __len__(self) -> int:
        return len(self._items)

    def has_room(self, rows: int) -> bool:
        """Whether so many can be promised, beside those that wait and others that are decoded. Where there are none, it
        takes any number."""
        return self._fits(self.rows + self.promised, rows)

    def full(self, retry_after_seconds: float) -> QueueFull:
        """The error of a request for which there is no room."""
        return QueueFull(self.rows + self.promised, self.limits.queue_rows, retry_after_seconds)

    def _fits(self, taken: int, rows: int) -> bool:
        return not taken or taken + rows <= self.limits.queue_rows

    def admit(self, item: Item, now: float, retry_after_seconds: float = 1.0) -> None:
        """Queue the request; raises `DeadlineExceeded`, or `QueueFull` where its rows would exceed the limit.

        An empty queue takes a request of any size, because a larger one would never fit.
        """
        if item.deadline <= now:
            raise DeadlineExceeded("the deadline had passed when the request arrived")
        if not self._fits(self.rows, item.rows):
            raise self.full(retry_after_seconds)
        item.admitted = now
        self._items.append(item)
        self.rows += item.waiting

    def discard(self, item: Item) -> bool:
        """Remove a request whose client has left or whose deadline has passed; False where it is not queued."""
        if item not in self._items:  # asked first: the error of `remove` would print its inputs
            return False
        self._items.remove(item)
        self.rows -= item.waiting
        return True

    def drain(self) -> Iterator[Item]:
        """Remove every request."""
        while self._items:
            item = self._items.popleft()
            self.rows -= item.waiting
            yield item

    def take(self, now: float, *, alone: bool = False, most: int | None = None) -> NextBatch:
        """Take the next batch, of at most `batch_rows` rows, and at most `most`; requests past their deadline come back
        as expired.

        alone: no other batch is computed beside it, so it need not leave them a part.
        """
        limit = self.limits.batch_rows if most is None else min(most, self.limits.batch_rows)
        taken, part = NextBatch(), limit if alone else self._part()
        room = min(part, limit) if len(self._items) == 1 else limit
        spare = max(0, room - part)  # only for the rest of a request that is in the batch already
        while self._items and room > spare:
            item = self._items[0]
            if item.deadline <= now:
                self.rows -= self._items.popleft().waiting
                taken.expired.append(item)
                continue
            rows = min(room, item.waiting)
            taken.pieces.append(Piece(item, item.taken, item.taken + rows))
            item.taken += rows
            self.rows -= rows
            room -= rows
            if not item.waiting:
                self._items.popleft()
        self._take_turns(taken, limit)
        return taken

    def _part(self) -> int:
        """One batch's share of the waiting rows, where `at_once` batches are computed side by side.

        Of a request that waits alone, the share is of all its rows, also those taken before.
        """
        rows = self._items[0].rows if len(self._items) == 1 else self.rows
        return max(FEW_ROWS, math.ceil(rows / self.limits.at_once))

    def _take_turns(self, taken: NextBatch, limit: int) -> None:
        """Move the rest of an oversized request behind the others after each batch."""
        last = taken.pieces[-1].item if taken.pieces else None
        if last is not None and last.waiting and last.rows > limit:
            self._items.rotate(-1)
