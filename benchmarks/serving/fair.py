"""A small network beside a large one in one process: how long its predictions take while others ask the large one."""

import http.client
import json
import shutil
import statistics
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from benchmarks.core.settings import Settings, Values
from benchmarks.fit.networks.zoo import network_spec
from benchmarks.serving.digits import Request, features
from benchmarks.serving.fitted import SERVING, bundle
from benchmarks.serving.process import ServerProcess, free_port, started
from probity.offline.config import FitConfig
from probity.offline.fit import fit_bundle
from probity.service.bundle import MANIFEST, read_manifest

SMALL, LARGE = "digits", "large"
CLIENTS = (0, 1, 16)
PAUSE_SECONDS = 0.005  # of the client of the small network, between two requests
TRAINED, HELD_OUT = 16, 40


def run(settings: Settings) -> Values:
    """In rounds: the small network alone, and beside clients that ask the large one without a pause."""
    seconds, count = settings.choose(8, 1), settings.choose(5, 1)
    folder = models(settings.scratch / "models")
    with service(folder, settings.scratch / "service.log") as server:
        asked = large_request(folder / LARGE)
        rounds = [
            {str(clients): turn(server, asked, clients, seconds) for clients in CLIENTS}
            for _ in settings.track(range(count), "Rounds", count)
        ]
    return {"rows": {clients: medians([one[clients] for one in rounds]) for clients in rounds[0]}, "rounds": rounds}


def models(folder: Path) -> Path:
    """The digits' bundle, and a ResNet-18 of random weights."""
    large = SERVING / LARGE
    if not (large / MANIFEST).is_file():
        network = network_spec("resnet18", "full")
        x, y = network.data(TRAINED + HELD_OUT)
        config = FitConfig(subnetwork_size=500, selection="random", prior_precision=100.0, name=LARGE)
        train, held_out = [(x[:TRAINED], y[:TRAINED])], [(x[TRAINED:], y[TRAINED:])]
        fit_bundle(network.model(), train, large, calibration_loader=held_out, config=config)
    shutil.rmtree(folder, ignore_errors=True)
    for name, source in ((SMALL, bundle()), (LARGE, large)):
        shutil.copytree(source, folder / name)
    return folder


@contextmanager
def service(folder: Path, log: Path) -> Iterator[ServerProcess]:
    """Of both, once they are loaded."""
    port = free_port()
    settings = {"PROBITY_ACCESS_LOG": "false", "PROBITY_READY_REQUIRES": "all", "PROBITY_DEFAULT_MODEL": SMALL}
    command = [sys.executable, "-m", "probity.service", "--models", str(folder), "--port", str(port)]
    with started(command, settings, port, log) as server:
        server.wait_until_answered(large_request(folder / LARGE))
        server.wait_until_answered(features())
        yield server


def large_request(folder: Path) -> Request:
    """One example of the large network."""
    shape = read_manifest(folder)[0].input.shape
    inputs = np.random.default_rng(0).normal(size=(1, *shape)).round(3)
    return Request("large", f"/models/{LARGE}/predict", json.dumps({"inputs": inputs.tolist()}).encode())


def turn(server: ServerProcess, asked: Request, clients: int, seconds: float) -> Values:
    """Seconds of each prediction of the small network, and how many of the large one were answered a second."""
    stop, counts = threading.Event(), [0] * clients

    def ask(number: int) -> None:
        while not stop.is_set():
            server.ask(asked)
            counts[number] += 1

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(clients)]
    for thread in threads:
        thread.start()
    try:
        taken = predictions(server, features(), seconds)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    p50, p99 = np.percentile(taken, [50, 99]).tolist()
    return {"p50": p50, "p99": p99, "large_per_second": sum(counts) / seconds}


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
