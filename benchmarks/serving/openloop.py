"""Plans for the generator: Poisson arrivals with a seed, bursts; and what came of them."""

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.core.folders import ROOT
from benchmarks.core.harness import MeasurementError
from benchmarks.serving.digits import Request
from benchmarks.serving.outcomes import Outcomes

Array = npt.NDArray[Any]
CONNECTIONS, PATIENCE_SECONDS = 1024, 60.0


@dataclass(frozen=True)
class Kind:
    """A request that is played: `wire` what is sent, `share` how often; it leaves after `vanish_seconds`."""

    wire: bytes
    share: float = 1.0
    vanish_seconds: float | None = None

    @classmethod
    def of(cls, request: Request, vanish_seconds: float | None = None) -> "Kind":
        return cls(request.wire(), vanish_seconds=vanish_seconds)


@dataclass(frozen=True)
class Plan:
    """`due` (n,) ascending seconds, `kind` (n,) positions in `kinds`."""

    kinds: Sequence[Kind]
    due: Array
    kind: Array
    patience_seconds: float = PATIENCE_SECONDS


def poisson(kinds: Sequence[Kind], rate: float, seconds: float, seed: int) -> Plan:
    """Requests at `rate` a second, independent of each other, for about `seconds`."""
    if rate <= 0:
        raise MeasurementError("a rate of 0 requests a second: the server answered nothing with 200 at saturation")
    random = np.random.default_rng(seed)
    due = np.cumsum(random.exponential(1 / rate, max(1, round(rate * seconds))))
    shares = np.array([kind.share for kind in kinds])
    return Plan(kinds, due, random.choice(len(kinds), len(due), p=shares / shares.sum()))


class Playing:
    """A generator at work: from `start` on (monotonic seconds) it sends; `finish` waits for its end."""

    def __init__(self, port: int, plan: Plan) -> None:
        self._folder = tempfile.TemporaryDirectory()
        self._results = Path(self._folder.name) / "results.npy"
        written = _write(Path(self._folder.name), port, plan, self._results)
        command = [sys.executable, "-m", "benchmarks.serving.generator", str(written)]
        self._process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise MeasurementError(f"the generator: found exit status {self._process.wait()} before it began")
        self.start: float = json.loads(line)["start"]

    def finish(self) -> Outcomes:
        with self._folder, self._process:
            output, _ = self._process.communicate()
            if self._process.returncode:
                raise MeasurementError(f"the generator: found exit status {self._process.returncode}")
            cores = json.loads(output)["cores"]
            table = np.load(self._results)
        due, sent, done, status, kind = table.T
        return Outcomes(self.start, due, sent, done, status.astype(int), kind.astype(int), cores)


def play(port: int, plan: Plan) -> Outcomes:
    """Send it all, and wait for every answer."""
    return Playing(port, plan).finish()


def _write(folder: Path, port: int, plan: Plan, results: Path) -> Path:
    kinds = []
    for number, kind in enumerate(plan.kinds):
        file = folder / f"request-{number}"
        file.write_bytes(kind.wire)
        kinds.append({"file": str(file), "vanish_seconds": kind.vanish_seconds})
    np.save(folder / "arrivals.npy", np.column_stack([plan.due, plan.kind]))
    written = folder / "plan.json"
    document = {
        "port": port,
        "connections": CONNECTIONS,
        "patience_seconds": plan.patience_seconds,
        "kinds": kinds,
        "arrivals": str(folder / "arrivals.npy"),
        "results": str(results),
    }
    written.write_text(json.dumps(document))
    return written
