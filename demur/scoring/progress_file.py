"""The rows that a job has written so far, and a small file beside them that says of which job they are.

`OUT.part` holds one JSON object a line; `OUT.part.json` says how many rows of it count. Rows beyond are of a batch that
a kill interrupted: they are cut off, and scored again.
"""

import fcntl
import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Self

from demur.service.format.files import replace_file

from .errors import ScoringError
from .rows import Row

REMEDY = "give another --out, or --force to start again"


@dataclass(frozen=True)
class Job:
    """What is scored with what: a part of one job never continues another. policy: its options, by name.
    first: the number of the first input.
    """

    digest: str
    source: str
    count: int
    policy: dict[str, Any]
    keep: list[str] = field(default_factory=list)
    first: int = 0

    def options(self) -> dict[str, Any]:
        """Everything by name."""
        found = asdict(self)
        del found["policy"]
        return self.policy | found


class ProgressFile:
    """The part of one job, held by one process at a time.

    rows: how many inputs are done; last: the digest of the last of them.
    """

    def __init__(self, out: Path, job: Job) -> None:
        self.part, self._state = out.with_name(f"{out.name}.part"), out.with_name(f"{out.name}.part.json")
        self._job, self.rows, self._bytes = job, 0, 0
        self.last = ""
        self._file: BinaryIO

    def open(self, force: bool) -> Self:
        """Go on where the job was; raises `ScoringError` for another job's part, unless it shall be discarded."""
        self.part.parent.mkdir(parents=True, exist_ok=True)
        self._file = open(self.part, "ab")  # noqa: SIM115  closed by `close`
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._file.close()
            raise ScoringError(
                f"{self.part}: another process is writing it; wait for it, or give another --out"
            ) from None
        try:
            if not force:
                self._resume()
            self._file.truncate(self._bytes)
            self.save()
        except BaseException:
            self._file.close()
            raise
        return self

    def _resume(self) -> None:
        if not self._state.exists():
            if self._file.tell():
                raise ScoringError(f"{self.part}: found rows without {self._state.name}, expected both; {REMEDY}")
            return
        try:
            state: dict[str, Any] = json.loads(self._state.read_text())
            job, self.rows, self._bytes = Job(**state["job"]), int(state["rows"]), int(state["bytes"])
            self.last = str(state["last"])
        except (ValueError, KeyError, TypeError):
            raise ScoringError(f"{self._state}: found no record of a scoring job; {REMEDY}") from None
        if not self.rows:  # nothing is lost
            self._bytes = 0
            return
        others = job.options()
        for name, expected in self._job.options().items():
            if (found := others.get(name)) != expected:
                raise ScoringError(f"{self.part}: found a job with {name} {found!r}, expected {expected!r}; {REMEDY}")
        if self._file.tell() < self._bytes:
            raise ScoringError(f"{self.part}: found {self._file.tell()} bytes, expected {self._bytes}; {REMEDY}")

    def append(self, rows: list[Row], last: str) -> None:
        """Write the rows of the next inputs; `last`: the digest of the last one."""
        data = b"".join(json.dumps(row, ensure_ascii=False, allow_nan=False).encode() + b"\n" for row in rows)
        self._file.write(data)
        self.rows, self.last = self.rows + len(rows), last
        self._bytes += len(data)

    def save(self) -> None:
        """Flush the rows to disk, and then what is said of them."""
        self._file.flush()
        os.fsync(self._file.fileno())
        state = {"job": asdict(self._job), "rows": self.rows, "bytes": self._bytes, "last": self.last}
        replace_file(self._state, json.dumps(state).encode())

    def close(self) -> None:
        """Release the part; it stays for the next run where it holds any row."""
        self._file.close()
        if not self.rows:
            self.part.unlink(missing_ok=True)
            self.remove_state()

    def remove_state(self) -> None:
        """After the rows were published."""
        self._state.unlink(missing_ok=True)
