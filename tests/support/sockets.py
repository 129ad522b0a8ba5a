"""Bytes sent to a server over a plain socket, and the responses to them."""

import contextlib
import socket

from demur.service.http.middleware import SECURITY_HEADERS
from demur.service.schemas import Problem
from tests.support.client import PROBLEM_TYPE
from tests.support.server import Server


def free_port() -> int:
    """A port on which nothing listens now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def answers(connection: socket.socket) -> list[tuple[int, dict[str, str], bytes]]:
    """Status, headers and body of every response until the service closes the connection."""
    found = []
    with connection.makefile("rb") as stream:
        while line := stream.readline():
            headers = dict[str, str]()
            while (field := stream.readline()) not in (b"\r\n", b""):
                name, _, value = field.decode().partition(":")
                headers[name.lower()] = value.strip()
            found.append((int(line.split()[1]), headers, stream.read(int(headers["content-length"]))))
    return found


def exchange(server: Server, *pieces: bytes) -> list[tuple[int, dict[str, str], bytes]]:
    """Send the pieces; the responses until the service closes the connection."""
    with contextlib.closing(server.socket()) as connection:
        with contextlib.suppress(ConnectionError):
            for piece in pieces:
                connection.sendall(piece)
        return answers(connection)


def refused(found: list[tuple[int, dict[str, str], bytes]], *statuses: int) -> str:
    """Check that the last response is a problem and closes the connection; returns its code."""
    assert [status for status, _, _ in found] == [*statuses]
    status, headers, body = found[-1]
    assert headers["content-type"] == PROBLEM_TYPE
    assert headers["connection"] == "close"
    assert "server" not in headers
    assert {name.decode(): value.decode() for name, value in SECURITY_HEADERS}.items() <= headers.items()
    assert headers["content-security-policy"].startswith("default-src 'none'")
    problem = Problem.model_validate_json(body)
    assert problem.status == status
    return problem.code
