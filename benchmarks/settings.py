"""What every benchmark is handed, and how its result is written."""

import json
import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.artefacts import Shelf
from benchmarks.harness import MeasurementError
from offline.runtime.progress import Track

Values = dict[str, Any]


@dataclass(frozen=True)
class Settings:
    """quick: miniatures and one repetition, to see that everything works; its numbers mean nothing.

    rows: names of the only ones to measure, of a benchmark that measures one row for each name; the others stay.
    """

    quick: bool
    threads: int
    shelf: Shelf
    track: Track
    out: Path
    rows: tuple[str, ...] = ()

    def choose(self, full: Any, quick: Any) -> Any:
        return quick if self.quick else full

    def names(self, full: tuple[str, ...], quick: tuple[str, ...]) -> tuple[str, ...]:
        """Which rows to measure; `MeasurementError` for one that there is not."""
        if unknown := [name for name in self.rows if name not in full]:
            raise MeasurementError(f"--rows: found {', '.join(unknown)}, expected some of {', '.join(full)}")
        return self.rows or self.choose(full, quick)

    def with_earlier(self, file: str, key: str, rows: list[Values], order: tuple[str, ...]) -> list[Values]:
        """The rows, and those of the last result that were not measured again."""
        path, found = self.out / file, {}
        if self.rows and path.exists():
            found = {row[key]: row for row in json.loads(path.read_text())["rows"]}
        found |= {row[key]: row for row in rows}
        return [found[name] for name in order if name in found]


@dataclass(frozen=True)
class Benchmark:
    """One entry of the command line: `run` measures, `draw` makes a picture of the result (or none)."""

    name: str
    summary: str
    run: Callable[[Settings], Values]
    draw: Callable[[Values, Path], None] | None = None


def write_json(path: Path, values: Values) -> None:
    """Atomically: a reader finds the old file or the whole new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=".", suffix=".json")
    try:
        with os.fdopen(handle, "w") as stream:
            json.dump(values, stream, indent=1)
            stream.write("\n")
        Path(name).chmod(0o644)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
