"""The settings of a run, the definition of a benchmark, and the writing of results."""

import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.core.harness import MeasurementError
from demur.offline.runtime.progress import Track

Values = dict[str, Any]


@dataclass(frozen=True)
class Settings:
    """quick: miniatures and one repetition, to see that everything works; the numbers mean nothing.

    fast: what two cores can do in minutes, for experiments whose full size needs a GPU; `quick` goes before it.
    scratch: a folder for the run's files, deleted afterwards. seeds: networks of each kind in an experiment.
    rows: measure these only, in a benchmark with one row per name; the others keep their last result.
    """

    quick: bool
    threads: int
    scratch: Path
    track: Track
    out: Path
    rows: tuple[str, ...] = ()
    seeds: int | None = None
    fast: bool = False

    def choose(self, full: Any, quick: Any) -> Any:
        return quick if self.quick else full

    def scale(self, full: Any, fast: Any, quick: Any) -> Any:
        """The one of the three that this run is of."""
        return quick if self.quick else fast if self.fast else full

    def names(self, full: tuple[str, ...], quick: tuple[str, ...]) -> tuple[str, ...]:
        """The rows to measure; raises `MeasurementError` for an unknown one."""
        if unknown := [name for name in self.rows if name not in full]:
            raise MeasurementError(f"--rows: found {', '.join(unknown)}, expected some of {', '.join(full)}")
        return self.rows or self.choose(full, quick)

    def name_of(self, stem: str) -> str:
        """The name of this run's result files, without a suffix."""
        return f"{stem}_fast" if self.fast else stem

    def earlier(self, stem: str, key: str) -> Any:
        """What the last result has under `key`, where only some rows are measured now; None otherwise."""
        path = self.out / f"{self.name_of(stem)}.json"
        return json.loads(path.read_text())[key] if self.rows and path.exists() else None

    def with_earlier(self, stem: str, key: str, rows: list[Values], order: tuple[str, ...]) -> list[Values]:
        """The rows, and those of the last result that were not measured again, in order."""
        found = {row[key]: row for row in [*(self.earlier(stem, "rows") or []), *rows]}
        return [found[name] for name in order if name in found]


@dataclass(frozen=True)
class Benchmark:
    """One entry of the registry: `run` measures, `draw` plots the result.

    threads: where it is fixed. needs: what keeps it out of "all".
    fast: whether it has a smaller size for two cores, with result files of its own.
    """

    name: str
    summary: str
    run: Callable[[Settings], Values]
    draw: Callable[[Values, Path], None] | None = None
    threads: int | None = None
    needs: str = ""
    fast: bool = False


def write_json(path: Path, values: Values) -> None:
    """Write atomically: a reader sees the old file or the whole new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.stem}-{os.getpid()}.partial")
    partial.write_text(json.dumps(values, indent=1) + "\n")
    partial.replace(path)
