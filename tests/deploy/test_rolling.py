"""Two instances behind the proxy, restarted one after the other while clients ask without a pause: nothing is lost."""

import contextlib
import json
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from http.client import HTTPConnection
from pathlib import Path

import grpc
import pytest

from demur.service.rpc.protocol import SERVICE, Protocol
from tests.support.bundles import FEATURE_SPEC, write_linear
from tests.support.nginx import needs_nginx, placed, proxying_as
from tests.support.processes import wait_until
from tests.support.requests import GOOD
from tests.support.server import ROOT, TIMEOUT, Server, environment
from tests.support.sockets import free_port

pytestmark = [pytest.mark.slow, needs_nginx]
DRAIN_SECONDS = 0.5
BODY = json.dumps({"inputs": GOOD}).encode()
PROTOCOL = Protocol()
CALL: bytes = PROTOCOL["ModelInferRequest"](
    model_name="synthetic",
    inputs=[{"name": "inputs", "datatype": "FP32", "shape": [1, 4], "contents": {"fp32_contents": GOOD}}],
).SerializeToString()


@dataclass
class Instance:
    """A service with ports of its own, which it has again after a restart."""

    arguments: list[str]
    port: int
    rpc_port: int
    running: Server | None = None

    def start(self) -> None:
        """Until it is ready."""
        command = [sys.executable, "-m", "demur.service", *self.arguments, "--port", f"{self.port}"]
        process = subprocess.Popen(
            [*command, "--grpc-port", f"{self.rpc_port}"],
            cwd=ROOT,
            env=environment(DEMUR_DRAIN_SECONDS=f"{DRAIN_SECONDS}", DEMUR_LOG_LEVEL="info"),
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        self.running = Server(process)
        self.running.wait_for("gRPC running on")
        self.running.port = self.port
        wait_until(self.is_ready)

    def is_ready(self) -> bool:
        """Whether it has its models."""
        assert self.running is not None
        return self.running.request("GET", "/health/ready")[0] == 200

    def end(self) -> None:
        """SIGTERM, and the end in order."""
        assert self.running is not None
        assert self.running.terminate() == 0
        self.close()

    def close(self) -> None:
        """Whatever it does."""
        if self.running is not None:
            self.running.close()
        self.running = None


@pytest.fixture
def arguments(tmp_path: Path) -> list[str]:
    """What the instances serve."""
    return [str(write_linear(tmp_path / "models" / "bundle", outputs=3, spec=FEATURE_SPEC).path)]


@pytest.fixture
def instances(arguments: list[str]) -> Iterator[list[Instance]]:
    found = [Instance(arguments, free_port(), free_port()) for _ in range(2)]
    try:
        for one in found:
            one.start()
        yield found
    finally:
        for one in found:
            one.close()


class Clients:
    """They ask until they are told to stop, and count the outcomes."""

    def __init__(self, ask: Callable[["Clients"], None], count: int = 4) -> None:
        self.outcomes, self.stopped = Counter[str](), threading.Event()
        self._threads = [threading.Thread(target=ask, args=(self,)) for _ in range(count)]

    def __enter__(self) -> "Clients":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stopped.set()
        for thread in self._threads:
            thread.join(TIMEOUT)

    def wait_for_more(self, count: int = 200) -> None:
        """Until so many more have been answered."""
        wanted = self.outcomes.total() + count
        wait_until(lambda: self.outcomes.total() >= wanted)


def ask_by_http(port: int, clients: Clients) -> None:
    with contextlib.closing(HTTPConnection("127.0.0.1", port, timeout=TIMEOUT)) as connection:
        while not clients.stopped.is_set():
            connection.request("POST", "/predict", BODY)
            answer = connection.getresponse()
            answer.read()
            clients.outcomes[f"{answer.status}"] += 1


def ask_by_http_again(port: int, clients: Clients) -> None:
    """On a new connection, where the proxy has closed the old one: a reload closes those on which nothing is asked."""
    while not clients.stopped.is_set():
        with contextlib.suppress(ConnectionError):
            ask_by_http(port, clients)


def ask_by_grpc(port: int, clients: Clients) -> None:
    with grpc.insecure_channel(f"127.0.0.1:{port}", options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
        ask = channel.unary_unary(f"/{SERVICE}/ModelInfer")
        while not clients.stopped.is_set():
            try:
                PROTOCOL["ModelInferResponse"].FromString(ask(CALL, timeout=TIMEOUT))
                clients.outcomes["200"] += 1
            except grpc.RpcError as error:
                clients.outcomes[f"{error.code()}: {error.details()}"] += 1


def upstreams(instances: list[Instance], down: Instance | None = None) -> dict[str, str]:
    """What the file says in place of its one instance."""

    def listed(ports: list[int]) -> str:
        marks = [" down" if one is down else "" for one in instances]
        return "; server ".join(f"127.0.0.1:{port} max_fails=0{mark}" for port, mark in zip(ports, marks, strict=True))

    return {
        "demur:8000 max_fails=0": listed([one.port for one in instances]),
        "demur:8001 max_fails=0": listed([one.rpc_port for one in instances]),
    }


@pytest.fixture
def ports() -> tuple[int, int]:
    """Of the proxy, for HTTP and for gRPC."""
    return free_port(), free_port()


@pytest.mark.parametrize("folder", [False, True])
def test_http_needs_nothing_but_the_restart(
    folder: bool, arguments: list[str], instances: list[Instance], ports: tuple[int, int], tmp_path: Path
) -> None:
    if folder:  # they answer before they have models
        arguments[:] = ["--models", str(tmp_path / "models")]
    with proxying_as(tmp_path, ports, upstreams(instances)), Clients(partial(ask_by_http, ports[0])) as clients:
        for one in instances:
            clients.wait_for_more()
            one.end()
            clients.wait_for_more()
            one.start()
        clients.wait_for_more()
    assert set(clients.outcomes) == {"200"}, clients.outcomes


def test_grpc_and_http_where_the_proxy_is_told_before(
    instances: list[Instance], ports: tuple[int, int], tmp_path: Path
) -> None:
    """`down` and a reload, the restart, and a reload without it."""
    with proxying_as(tmp_path, ports, upstreams(instances)) as proxy:

        def reload(down: Instance | None) -> None:
            (tmp_path / "nginx.conf").write_text(placed(ports, tmp_path, upstreams(instances, down)))
            proxy.process.send_signal(signal.SIGHUP)

        with (
            Clients(partial(ask_by_http_again, ports[0]), 2) as http,
            Clients(partial(ask_by_grpc, ports[1]), 2) as rpc,
        ):
            for one in instances:
                wait_for_more(http, rpc)
                reload(one)
                wait_for_more(http, rpc)
                one.end()
                one.start()
                reload(None)
            wait_for_more(http, rpc)
    assert set(http.outcomes) == set(rpc.outcomes) == {"200"}, (http.outcomes, rpc.outcomes)


def wait_for_more(*several: Clients) -> None:
    for clients in several:
        clients.wait_for_more()


def test_what_the_proxy_refuses_is_a_status_of_grpc(
    instances: list[Instance], ports: tuple[int, int], tmp_path: Path
) -> None:
    changes = upstreams(instances) | {"client_max_body_size 5m": "client_max_body_size 1k"}
    with proxying_as(tmp_path, ports, changes), grpc.insecure_channel(f"127.0.0.1:{ports[1]}") as channel:

        def refused(method: str, message: bytes) -> grpc.StatusCode:
            with pytest.raises(grpc.RpcError) as error:
                channel.unary_unary(method)(message, timeout=TIMEOUT)
            found: grpc.StatusCode = error.value.code()
            return found

        infer = f"/{SERVICE}/ModelInfer"
        assert channel.unary_unary(infer)(CALL, timeout=TIMEOUT)
        reflection = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"
        assert refused(reflection, b"") == grpc.StatusCode.UNIMPLEMENTED
        assert refused(infer, bytes(2000)) == grpc.StatusCode.RESOURCE_EXHAUSTED
        assert refused(infer, b"no message") == grpc.StatusCode.INVALID_ARGUMENT  # the service's own
        for one in instances:
            one.end()
        assert refused(infer, CALL) == grpc.StatusCode.UNAVAILABLE
