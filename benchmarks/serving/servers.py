"""The servers compared: this service, and others around the same predictor, each started as its documentation says."""

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.serving.digits import PREDICT, Request, rows
from benchmarks.serving.process import ServerProcess, free_port, started
from benchmarks.serving.venvs import environment
from benchmarks.serving.wrapped.settings import BATCH, DELAY_SECONDS

Array = npt.NDArray[Any]
WRAPPED = "benchmarks.serving.wrapped"


@dataclass(frozen=True)
class Place:
    """Where one server runs: `python` of its environment, `port`, `folder` for its files."""

    python: Path
    port: int
    folder: Path
    bundle: Path
    workers: int

    def tool(self, name: str) -> str:
        return str(self.python.parent / name)


@dataclass(frozen=True)
class Server:
    """`packages` empty: it runs in this environment. `body`: one example (1, 8, 8) in its format, `path`: where to.

    `workers` processes compute, with the processors divided among them, or `threads` each.
    """

    name: str
    command: Callable[[Place], Sequence[str]]
    body: Callable[[Array], Any]
    tuning: str
    path: str = PREDICT
    packages: tuple[str, ...] = ()
    settings: tuple[tuple[str, str], ...] = ()
    workers: int = 1
    threads: int | None = None

    @property
    def family(self) -> str:
        """The server's name without its number of workers."""
        return self.name.partition(",")[0]

    def request(self, example: Array) -> Request:
        return Request(self.name, self.path, json.dumps(self.body(example)).encode())

    def digit(self, index: int = 0) -> Request:
        return self.request(rows(1, index)[0])

    def install(self) -> Path:
        """The Python that runs it."""
        folder = environment(self.family, self.packages) if self.packages else None
        return folder / "bin" / "python" if folder else Path(sys.executable)

    @contextmanager
    def serve(self, folder: Path, bundle: Path, threads: int) -> Iterator[ServerProcess]:
        """Start it, and wait until it answers."""
        place = Place(self.install(), free_port(), folder / self.name, bundle, self.workers)
        place.folder.mkdir(parents=True, exist_ok=True)
        each = self.threads or max(1, threads // self.workers)
        arrangement = {"SERVED_WORKERS": str(self.workers), "SERVED_THREADS": str(each)}
        if self.family == DEMUR.name:
            arrangement = {"DEMUR_WORKERS": str(self.workers)}
        served = {"SERVED_BUNDLE": str(bundle), "SERVED_PORT": str(place.port), **arrangement}
        home = {"BENTOML_HOME": str(place.folder), "BENTOML_DO_NOT_TRACK": "True"}
        with started(
            self.command(place), {**served, **home, **dict(self.settings)}, place.port, place.folder / "log"
        ) as running:
            running.wait_until_answered(self.digit())
            yield running


def nested(example: Array) -> Any:
    return {"inputs": example.tolist()}


def batch_of_one(example: Array) -> Any:
    return {"inputs": [example.tolist()]}


def tensor(example: Array) -> Any:
    flat = {"name": "inputs", "shape": [1, *example.shape], "datatype": "FP32", "data": np.ravel(example).tolist()}
    return {"inputs": [flat]}


def module(name: str) -> Callable[[Place], Sequence[str]]:
    return lambda place: [str(place.python), "-m", f"{WRAPPED}.{name}"]


def demur(place: Place) -> Sequence[str]:
    return [str(place.python), "-m", "demur.service", str(place.bundle), "--port", str(place.port)]


def bento(place: Place) -> Sequence[str]:
    address = ["--host", "127.0.0.1", "--port", str(place.port)]
    return [place.tool("bentoml"), "serve", f"{WRAPPED}.bento:Digits", *address]


def mlserver(place: Place) -> Sequence[str]:
    ports = {"http_port": place.port, "grpc_port": free_port(), "metrics_port": free_port()}
    server = {"host": "127.0.0.1", **ports, "debug": False, "metrics_dir": str(place.folder / "metrics")}
    server["parallel_workers"] = place.workers
    batching = {"max_batch_size": BATCH, "max_batch_time": DELAY_SECONDS}
    model = {"name": "digits", "implementation": f"{WRAPPED}.mlserver_runtime.Digits", **batching}
    (place.folder / "settings.json").write_text(json.dumps(server))
    (place.folder / "model-settings.json").write_text(json.dumps({**model, "parameters": {"version": "1"}}))
    return [place.tool("mlserver"), "start", str(place.folder)]


GATHERED = f"batches of at most {BATCH}, gathered for at most {1000 * DELAY_SECONDS:g} ms"
QUIET = "; access log off"
DEMUR = Server(
    "demur",
    demur,
    nested,
    "defaults (batches of at most 64, no waiting for company)" + QUIET,
    settings=(("DEMUR_LOG_LEVEL", "warning"), ("DEMUR_ACCESS_LOG", "false")),
)
OTHERS = (
    Server("fastapi", module("plain_fastapi"), nested, "no batching; FastAPI's pool of 40 threads" + QUIET, threads=1),
    Server("litserve", module("lit"), nested, GATHERED + QUIET, packages=("litserve",)),
    Server(
        "bentoml",
        bento,
        batch_of_one,
        f"batches of at most {BATCH}; BentoML learns how long to wait" + QUIET,
        packages=("bentoml",),
    ),
    Server(
        "mlserver",
        mlserver,
        tensor,
        GATHERED + QUIET,
        path="/v2/models/digits/infer",
        packages=("mlserver>=1.7", "uvloop<0.22"),  # with a later uvloop its worker does not start
    ),
)
# Each server starts with one process and with two; the faster goes on, since what suits two cores differs.
SERVERS = tuple(
    arranged
    for server in (DEMUR, *OTHERS)
    for arranged in (server, replace(server, name=f"{server.name}, 2 workers", workers=2))
)
