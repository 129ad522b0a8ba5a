"""The end of a listening socket: established connections are served, and new ones are refused, not reset."""

import contextlib
import shlex
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from demur.service.process.listening import LEAST_FILES, accept_waiting, refuse_new_connections
from tests.support.bundles import Synthetic
from tests.support.server import ROOT, RUNNING, Server, environment

FILES = 400
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs Linux's socket filters")


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_no_client_connects_between_the_last_accept_and_the_close(host: str) -> None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host, 0), family=family) as listener, contextlib.ExitStack() as stack:
        address = listener.getsockname()[:2]
        early = [stack.enter_context(socket.create_connection(address, 10)) for _ in range(3)]
        refuse_new_connections(listener.fileno())
        refuse_new_connections(listener.fileno())  # as several workers do
        late = stack.enter_context(socket.socket(family))
        late.settimeout(0.3)
        with pytest.raises(TimeoutError):
            late.connect(address)
        accepted = [stack.enter_context(one) for one in accept_waiting(listener.fileno())]
        assert [one.getpeername() for one in accepted] == [one.getsockname() for one in early]
        for one, other in zip(early, accepted, strict=True):
            one.sendall(b"asked")
            assert other.recv(5) == b"asked"
        assert listener.fileno() > 0  # it is still open


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_process_that_may_open_too_few_files_does_not_start(classification: Synthetic, workers: str) -> None:
    """Health checks would fail as soon as a few clients come."""
    command = f"ulimit -n {LEAST_FILES - 1}; exec {shlex.join(service(classification.path))}"
    given = environment(DEMUR_WORKERS=workers)
    ended = subprocess.run(["sh", "-c", command], cwd=ROOT, env=given, text=True, capture_output=True)
    assert ended.returncode == 2
    (line,) = ended.stderr.splitlines()
    assert line.startswith(f"error: open files: found a limit of {LEAST_FILES - 1}, expected at least {LEAST_FILES}")


@pytest.mark.slow
def test_idle_connections_make_room_for_others(classification: Synthetic) -> None:
    """Where they would take every file that may be opened, the soft limit of which is raised to the hard one."""
    command = f"ulimit -S -n {FILES // 2}; ulimit -H -n {FILES}; exec {shlex.join(service(classification.path))}"
    process = subprocess.Popen(
        ["sh", "-c", command], cwd=ROOT, env=environment(), text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    with contextlib.ExitStack() as stack:
        server = Server(process)
        stack.callback(server.close)
        server.port = int(server.wait_for(RUNNING)[1])
        idle = [stack.enter_context(server.socket()) for _ in range(FILES * 3 // 4)]
        server.wait_for("idle ones are closed")
        assert idle[0].recv(1) == b""
        assert server.request("GET", "/health/ready")[0] == 200
        assert Path(f"/proc/{process.pid}/limits").read_text().count(f" {FILES} ") == 2


def service(bundle: Path) -> list[str]:
    return [sys.executable, "-m", "demur.service", str(bundle), "--port", "0"]
