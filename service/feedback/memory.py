"""Remember answers in a thread, so that no request waits for the disk, and find them again when labels come."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from prometheus_client import Counter

from probity.service.feedback.answers import Array
from probity.service.feedback.database import Answered, FeedbackDatabase, Labelled
from probity.service.monitoring.background import BackgroundThread, Work

SETTLE_SECONDS = 1.0  # what a label may wait for the answer that it belongs to


class FeedbackMemory:
    """Remembers from `start` to `close`. Answers that cannot be written are counted by `lost`.

    `find` and `label` wait for the disk and raise `sqlite3.Error`: call them in `threads`, of which there is one, so
    that labels never keep other work from running.
    """

    def __init__(self, database: FeedbackDatabase, lost: Counter) -> None:
        self._database = database
        self.threads = ThreadPoolExecutor(1, "probity-labels")
        self._thread = BackgroundThread("probity-feedback", "Answers to remember for feedback", lost, self._write)

    def start(self) -> None:
        """Begin to write."""
        self._thread.start()

    def remember(self, make: Callable[[], Answered], examples: int, numbers: int) -> None:
        """Keep what `make` gives, which is called in the thread; returns at once. numbers: how many `make` holds."""
        self._thread.note(Work(make, examples, numbers))

    def find(self, request_id: str) -> Answered | None:
        """The answers to the latest request of this id, also where they wait to be written: an earlier request of this
        id may have been written before them."""
        self._thread.settle(SETTLE_SECONDS)
        return self._database.find(request_id)

    def label(self, one: Answered, known: Array, errors: Array, accuracy: float | None) -> Labelled | None:
        """As `FeedbackDatabase.label`."""
        return self._database.label(one, known, errors, accuracy)

    def close(self) -> None:
        """Write what waits, for a few seconds at most, and release the file."""
        self.threads.shutdown(cancel_futures=True)
        if self._thread.close():
            self._database.close()

    def _write(self, several: Sequence[Answered]) -> None:
        self._database.remember(*several)
