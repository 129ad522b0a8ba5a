"""The SQLite file of remembered answers: every worker process opens it, and it outlives them.

A request is one row, whose key is the number of examples remembered up to and with it: the oldest rows go once there
are more examples than the file may hold. The state of each sequential test is a row too, so that all workers add to
one test.
"""

import contextlib
import json
import logging
import os
import sqlite3
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from probity.service.feedback.answers import Answers, Array
from probity.service.format.files import bundle_around
from probity.service.maths.accuracy_evidence import AccuracyEvidence, bet_on_errors, fresh_gambler
from probity.service.maths.betting import Gambler

APPLICATION, SCHEMA = 0x50524F42, 1  # "PROB"
PRIVATE = 0o600
BUSY_SECONDS = 5.0  # how long to wait for another process that writes
TABLES = """
CREATE TABLE IF NOT EXISTS answers (
    last INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, model TEXT NOT NULL, version TEXT NOT NULL, digest TEXT NOT NULL,
    decisions BLOB NOT NULL, answered BLOB NOT NULL, labelled BLOB NOT NULL, repeated INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS tests (
    digest TEXT NOT NULL, accuracy REAL NOT NULL, steps INTEGER NOT NULL, bets TEXT NOT NULL,
    PRIMARY KEY (digest, accuracy));
"""
log = logging.getLogger("probity")


class FeedbackFileError(ValueError):
    """The file of remembered answers cannot be used."""


@dataclass(frozen=True)
class Answered:
    """Which model answered a request, and what; repeated: whether an earlier one of this id had other answers."""

    id: str
    model: str
    version: str
    digest: str
    answers: Answers
    repeated: bool = False


@dataclass(frozen=True)
class Labelled:
    """new (B,) bool: whose labels are known only now; evidence: the sequential test after them, None without one."""

    new: Array
    evidence: AccuracyEvidence | None


class FeedbackDatabase:
    """Remembers the answers to about `most_examples`. Threads may share it; close it at the end.

    Raises `FeedbackFileError` where the file cannot be opened or holds something else. Every method raises
    `sqlite3.Error` where the disk is full or another process keeps the file locked.
    """

    def __init__(self, path: Path, most_examples: int) -> None:
        self.path, self.most_examples = path, most_examples
        self._lock = threading.Lock()
        if (around := bundle_around(path)) is not None:
            raise FeedbackFileError(
                f"{path}: lies in the bundle {around}, which may hold nothing else; give another PROBITY_FEEDBACK_FILE"
            )
        try:
            self._connection, self._stat = self._open(), path.stat()
        except (OSError, sqlite3.Error) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            raise FeedbackFileError(
                f"{path}: cannot be used ({reason}), expected an SQLite file of this service, or none, in a folder "
                "that exists and that the service may write to; check PROBITY_FEEDBACK_FILE"
            ) from None

    def _open(self) -> sqlite3.Connection:
        os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PRIVATE))
        connection = sqlite3.connect(self.path, BUSY_SECONDS, isolation_level=None, check_same_thread=False)
        try:
            known = [connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version")]
            tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
            if known != [APPLICATION, SCHEMA] and (tables or known != [0, 0]):
                raise sqlite3.DatabaseError(f"found application {known[0]} of version {known[1]}")
            connection.execute("PRAGMA journal_mode = WAL")  # readers and one writer do not wait for each other
            connection.execute("PRAGMA synchronous = OFF")  # a crash of the machine may cost the file, never an answer
            connection.executescript(TABLES)
            connection.execute(f"PRAGMA application_id = {APPLICATION}")
            connection.execute(f"PRAGMA user_version = {SCHEMA}")
        except sqlite3.Error:
            connection.close()
            raise
        return connection

    def remember(self, *several: Answered) -> None:
        """Keep the answers, all or none; earlier requests of these ids are forgotten, and so are the oldest examples.

        A request that is sent again and answered alike is the same one, with its labels.
        """
        with self._transaction() as connection:
            last = connection.execute("SELECT max(last) FROM answers").fetchone()[0] or 0
            for one in several:
                last += len(one.answers)
                _put(connection, last, one)
            connection.execute("DELETE FROM answers WHERE last <= ?", (last - self.most_examples,))

    def find(self, request_id: str) -> Answered | None:
        """The answers to the latest request of this id."""
        with self._lock:
            self._follow()
            query = "SELECT id, model, version, digest, decisions, answered, repeated FROM answers WHERE id = ?"
            row = self._connection.execute(query, (request_id,)).fetchone()
        if row is None:
            return None
        name, model, version, digest, decisions, values, repeated = row
        kept = np.frombuffer(decisions, np.uint8)
        answers = Answers(kept, np.frombuffer(values, np.float64).reshape(len(kept), -1))
        return Answered(name, model, version, digest, answers, bool(repeated))

    def label(self, one: Answered, known: Array, errors: Array, accuracy: float | None) -> Labelled | None:
        """Note whose truth is `known`, (B,) bool; None where the answers have been forgotten meanwhile.

        The test of `accuracy`, where there is one, goes on with `errors` (B,), but for those that are NaN, and only for
        examples that had no label before.
        """
        with self._transaction() as connection:
            key = (one.id, one.digest)
            row = connection.execute("SELECT labelled FROM answers WHERE id = ? AND digest = ?", key).fetchone()
            if row is None or len(row[0]) != len(known):
                return None
            before = np.frombuffer(row[0], bool)
            new = known & ~before
            if new.any():
                both = (before | known).tobytes()
                connection.execute("UPDATE answers SET labelled = ? WHERE id = ? AND digest = ?", (both, *key))
            usable = errors[new & ~np.isnan(errors)]
            return Labelled(new, None if accuracy is None else _go_on(connection, one.digest, accuracy, usable))

    def close(self) -> None:
        """Release the file."""
        with self._lock:
            self._connection.close()

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            self._follow()
            with self._connection:  # commits at the end, or rolls back
                self._connection.execute("BEGIN IMMEDIATE")
                yield self._connection

    def _follow(self) -> None:
        """Open the file again where it has been deleted or replaced: other processes would write to another one."""
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(self.path.stat(), self._stat):
                return
        log.error("%s has been deleted or replaced: what it remembered is lost", self.path)
        try:
            fresh, stat = self._open(), self.path.stat()
        except OSError as error:
            raise sqlite3.OperationalError(f"{self.path}: {error.strerror}") from None
        self._connection.close()
        self._connection, self._stat = fresh, stat


def _put(connection: sqlite3.Connection, last: int, one: Answered) -> None:
    """Write the row with this key, in place of the earlier one of the same id."""
    blobs = (one.answers.decisions.tobytes(), one.answers.values.tobytes())
    query = "SELECT digest, decisions, answered, labelled, repeated FROM answers WHERE id = ?"
    earlier = connection.execute(query, (one.id,)).fetchone()
    same = earlier is not None and earlier[:3] == (one.digest, *blobs)
    labelled, repeated = earlier[3:] if same else (bytes(len(one.answers)), earlier is not None)
    row = (last, one.id, one.model, one.version, one.digest, *blobs, labelled, repeated)
    connection.execute("INSERT OR REPLACE INTO answers VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", row)


def _go_on(connection: sqlite3.Connection, digest: str, accuracy: float, errors: Array) -> AccuracyEvidence:
    """Read the test's state, go on with the errors, and write it."""
    query = "SELECT steps, bets FROM tests WHERE digest = ? AND accuracy = ?"
    row: tuple[int, str] | None = connection.execute(query, (digest, accuracy)).fetchone()
    before = fresh_gambler() if row is None else Gambler.of(row[0], json.loads(row[1]))
    found = bet_on_errors(before, errors.tolist(), accuracy)
    state: tuple[Any, ...] = (digest, accuracy, found.gambler.steps, json.dumps(found.gambler.bets))
    connection.execute("INSERT OR REPLACE INTO tests VALUES (?, ?, ?, ?)", state)
    return found
