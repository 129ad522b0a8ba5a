"""The decoder processes of a running service: what they inherit, which signals they heed, and how they end."""

import contextlib
import json
import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from PIL import Image

from tests.support.bundles import Synthetic
from tests.support.client import base64_text, encoded
from tests.support.processes import children_of, cpu_ticks, is_running, wait_until
from tests.support.server import Server, running

IMAGE = json.dumps({"images": [base64_text(encoded(Image.effect_noise((100, 100), 50)))]}).encode()
LONG = json.dumps({"images": [base64_text(encoded(Image.new("RGBA", (4096, 4096))))] * 4}).encode()
HEAD = b"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n"


@contextlib.contextmanager
def with_a_decoder(bundle: Path) -> Iterator[Server]:
    with running(bundle, DEMUR_SHUTDOWN_SECONDS="1") as started:
        assert not children_of(started.process.pid)  # before there is work for one
        assert started.request("POST", "/predict", IMAGE)[0] == 200
        yield started


@pytest.fixture(scope="module")
def lasting(images: Synthetic) -> Iterator[Server]:
    with with_a_decoder(images.path) as started:
        yield started


@pytest.fixture
def server(images: Synthetic) -> Iterator[Server]:
    with with_a_decoder(images.path) as started:
        yield started


def decoder(server: Server) -> int:
    (child,) = children_of(server.process.pid)
    return child


@contextlib.contextmanager
def busy(server: Server) -> Iterator[socket.socket]:
    """A request whose images take seconds."""
    with contextlib.closing(server.socket()) as connection:
        spent = cpu_ticks(decoder(server))
        connection.sendall(HEAD % len(LONG) + LONG)
        wait_until(lambda: max(map(cpu_ticks, children_of(server.process.pid))) > spent)
        yield connection


def test_it_has_no_socket_but_the_line_to_its_parent(lasting: Server) -> None:
    links = [str(path.readlink()) for path in Path(f"/proc/{decoder(lasting)}/fd").iterdir()]
    assert len([link for link in links if link.startswith("socket:")]) == 1


def test_signals_to_the_whole_group_are_left_to_the_parent(lasting: Server) -> None:
    child = decoder(lasting)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        os.kill(child, number)
    assert lasting.request("POST", "/predict", IMAGE)[0] == 200
    assert decoder(lasting) == child
    assert os.getpgid(child) != os.getpgid(lasting.process.pid)


def test_it_ends_with_the_service(server: Server) -> None:
    child = decoder(server)
    assert server.terminate() == 0
    assert not is_running(child)


def test_at_the_end_work_is_not_waited_for_longer_than_requests(server: Server) -> None:
    with busy(server) as connection:
        working = children_of(server.process.pid)
        for child in working:
            os.kill(child, signal.SIGSTOP)  # however fast the machine is, the images are not done in time
        server.process.terminate()
        assert connection.recv(12) in (b"HTTP/1.1 503", b"")
        assert server.process.wait(30) == 0
    assert not any(map(is_running, working))


def test_it_ends_when_the_service_is_killed_also_at_work(server: Server) -> None:
    with busy(server):
        working = children_of(server.process.pid)
        server.process.kill()
        server.process.wait(30)
        wait_until(lambda: not any(map(is_running, working)))
