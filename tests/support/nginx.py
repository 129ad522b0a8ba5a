"""The very configuration file of the proxy, run by a real nginx; ports and folders are the test's."""

import contextlib
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.support.server import ROOT, TIMEOUT, Server

CONFIGURATION = ROOT / "deploy/nginx/nginx.conf"
NGINX = shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
needs_nginx = pytest.mark.skipif(
    NGINX is None or sys.platform != "linux", reason="needs nginx (Debian's package nginx) on Linux"
)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def configured(changes: Mapping[str, str]) -> str:
    """The file with these texts replaced, each of which it holds."""
    text = CONFIGURATION.read_text()
    for old, new in changes.items():
        assert old in text, old
        text = text.replace(old, new)
    return text


def placed(ports: tuple[int, int], folder: Path, changes: Mapping[str, str]) -> str:
    """The file with these changes, which listens on these ports for HTTP and gRPC, and writes to `folder` alone."""
    listening = {f"listen {old}": f"listen 127.0.0.1:{port}" for old, port in zip((8080, 8081), ports, strict=True)}
    return configured({**changes, **listening, "/tmp/": f"{folder}/"})


@contextlib.contextmanager
def proxying(
    service_port: int, folder: Path, changes: Mapping[str, str] | None = None, rpc_port: int | None = None
) -> Iterator[Server]:
    """nginx in front of this port of a service; the `port` of what is yielded is its own. `changes`: in its file.
    rpc_port: of the service's gRPC."""
    one = {"demur:8000": f"127.0.0.1:{service_port}", "demur:8001": f"127.0.0.1:{rpc_port or 1}"}
    with proxying_as(folder, (_free_port(), _free_port()), {**one, **(changes or {})}) as server:
        yield server


@contextlib.contextmanager
def proxying_as(folder: Path, ports: tuple[int, int], changes: Mapping[str, str]) -> Iterator[Server]:
    """nginx with the file that `placed` gives."""
    assert NGINX is not None
    file = folder / "nginx.conf"
    file.write_text(placed(ports, folder, changes))
    user = "user root; " if os.geteuid() == 0 else ""  # else its processes could not write below the folder
    command = [NGINX, "-p", str(folder), "-c", str(file), "-g", f"{user}daemon off;"]
    process = subprocess.Popen(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    server = Server(process)
    server.port = ports[0]
    try:
        _wait_until_listening(server)
        yield server
    finally:
        process.terminate()
        process.wait(TIMEOUT)
        server.wait_for_end_of_log()
        assert process.stdout is not None
        process.stdout.close()


def _wait_until_listening(server: Server) -> None:
    while True:
        assert server.process.poll() is None, "\n".join(server.lines)
        with contextlib.suppress(ConnectionRefusedError), server.socket():
            return
