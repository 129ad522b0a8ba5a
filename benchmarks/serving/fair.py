"""Several networks in one process: how long the predictions of one take while clients ask another one all the time."""

import http.client
import json
import shutil
import statistics
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from benchmarks.core.settings import Settings, Values
from benchmarks.fit.networks.zoo import network_spec
from benchmarks.serving.digits import Request, features
from benchmarks.serving.fitted import SERVING, bundle
from benchmarks.serving.process import ServerProcess, free_port, started
from benchmarks.serving.wrk import saturate
from demur.offline.config import FitConfig
from demur.offline.fit import fit_bundle
from demur.service.bundle import MANIFEST, read_manifest

DIGITS = "digits"
# Of random weights. The event loop computes the digits' network, threads the others; the last one takes long.
NETWORKS = ("small-cnn", "conv1d", "resnet18")
# The network whose predictions are timed, the one that is asked all the time, and by how many clients.
TURNS = (
    (DIGITS, "", 0),
    (DIGITS, "resnet18", 1),
    (DIGITS, "resnet18", 16),
    ("small-cnn", "", 0),
    ("small-cnn", "conv1d", 1),
    ("small-cnn", "conv1d", 64),
)
PAUSE_SECONDS = 0.005  # of the client of the first one, between two requests
LEAD_SECONDS = 0.5  # the others begin earlier, and end later
TRAINED, HELD_OUT = 16, 40


def run(settings: Settings) -> Values:
    """In rounds: a network alone, and beside clients that ask another one without a pause."""
    seconds, count = settings.choose(6, 1), settings.choose(5, 1)
    folder = models(settings.scratch / "models")
    with service(folder, settings.scratch / "service.log") as server:
        asked = {name: example(folder, name) for name in (DIGITS, *NETWORKS)}
        rounds = [
            [
                turn(server, asked[timed], asked.get(other), clients, seconds, settings.scratch)
                for timed, other, clients in TURNS
            ]
            for _ in settings.track(range(count), "Rounds", count)
        ]
    rows = [
        {"timed": timed, "other": other, "clients": clients, **medians([one[number] for one in rounds])}
        for number, (timed, other, clients) in enumerate(TURNS)
    ]
    return {"rows": rows, "rounds": rounds}


def models(folder: Path) -> Path:
    """The digits' bundle, and the others."""
    sources = {DIGITS: bundle()} | {name: other_bundle(name) for name in NETWORKS}
    shutil.rmtree(folder, ignore_errors=True)
    for name, source in sources.items():
        shutil.copytree(source, folder / name)
    return folder


def other_bundle(name: str) -> Path:
    """Fitted once."""
    folder = SERVING / f"fair-{name}"
    if not (folder / MANIFEST).is_file():
        spec = network_spec(name, "full")
        x, y = spec.data(TRAINED + HELD_OUT)
        config = FitConfig(subnetwork_size=500, selection="random", prior_precision=100.0, name=name)
        train, held_out = [(x[:TRAINED], y[:TRAINED])], [(x[TRAINED:], y[TRAINED:])]
        fit_bundle(spec.model(), train, folder, calibration_loader=held_out, config=config)
    return folder


@contextmanager
def service(folder: Path, log: Path) -> Iterator[ServerProcess]:
    """Of all, once they are loaded."""
    port = free_port()
    settings = {"DEMUR_ACCESS_LOG": "false", "DEMUR_READY_REQUIRES": "all", "DEMUR_DEFAULT_MODEL": DIGITS}
    command = [sys.executable, "-m", "demur.service", "--models", str(folder), "--port", str(port)]
    with started(command, settings, port, log) as server:
        for name in (DIGITS, *NETWORKS):
            server.wait_until_answered(example(folder, name))
        yield server


def example(folder: Path, name: str) -> Request:
    """A request with one."""
    if name == DIGITS:
        return features()
    shape = read_manifest(folder / name)[0].input.shape
    inputs = np.random.default_rng(0).normal(size=(1, *shape)).round(3)
    return Request(name, f"/models/{name}/predict", json.dumps({"inputs": inputs.tolist()}).encode())


def turn(
    server: ServerProcess, timed: Request, other: Request | None, clients: int, seconds: float, scratch: Path
) -> Values:
    """Seconds of a prediction of the one, and how many of the other one were answered a second."""
    with ThreadPoolExecutor() as pool:
        if other is not None:
            others = pool.submit(saturate, server, other, seconds + 2 * LEAD_SECONDS, scratch, clients)
            time.sleep(LEAD_SECONDS)
        p50, p99 = np.percentile(predictions(server, timed, seconds), [50, 99]).tolist()
        rate = others.result().requests_per_second if other is not None else 0.0
    return {"p50": p50, "p99": p99, "others_per_second": rate}


def predictions(server: ServerProcess, request: Request, seconds: float) -> list[float]:
    """One after the other over one connection."""
    connection, taken = http.client.HTTPConnection("127.0.0.1", server.port), list[float]()
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        start = time.perf_counter()
        connection.request("POST", request.path, request.body, dict(request.headers))
        connection.getresponse().read()
        taken.append(time.perf_counter() - start)
        time.sleep(PAUSE_SECONDS)
    connection.close()
    return taken


def medians(turns: list[Values]) -> Values:
    """Of the rounds."""
    return {key: statistics.median(turn[key] for turn in turns) for key in turns[0]}
