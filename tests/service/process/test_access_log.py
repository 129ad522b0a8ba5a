"""The log: time and request of each line, the client that a trusted proxy names, and no query, which may hold a key."""

import datetime as dt
import json
import re
import socket
from pathlib import Path

import pytest

from demur.service.security.api_keys import new_key
from tests.support.bundles import Synthetic
from tests.support.requests import GOOD
from tests.support.server import TIMEOUT, running

SECRET = "s3cret-key"
GOOD_BODY = json.dumps({"inputs": GOOD}).encode()


@pytest.mark.parametrize("workers", ["1", "2"])
def test_no_query_is_logged(classification: Synthetic, workers: str) -> None:
    with running(classification.path, DEMUR_WORKERS=workers) as server:
        for method, path in [("GET", "/models"), ("POST", "/predict"), ("GET", "/nothing"), ("PATCH", "/predict")]:
            server.request(method, f"{path}?api_key={SECRET}&x=%3F")
            server.wait_for(f'"{method} {path} HTTP/1.1" ')
        with server.socket() as connection:
            connection.sendall(f"GET /models?api_key={SECRET} HTTP/1.1\r\nno header\r\n\r\n".encode())
            refused = connection.recv(2**16)
        named = re.search(rb"x-request-id: (\w+)", refused)
        assert named is not None
        server.wait_for(f"refused before it was a request: 400 http request={named[1].decode()}")
        assert refused.startswith(b"HTTP/1.1 400 ")
        assert SECRET not in refused.decode()
        assert not [line for line in server.lines if SECRET in line]


@pytest.mark.parametrize(
    ("trusted", "logged"), [(None, "192.0.2.7:0"), ("10.0.0.0/8", r"127\.0\.0\.1:\d+"), ("", r"127\.0\.0\.1:\d+")]
)
def test_the_client_that_a_trusted_proxy_names_is_logged(
    classification: Synthetic, trusted: str | None, logged: str
) -> None:
    extra = {} if trusted is None else {"DEMUR_TRUSTED_PROXIES": trusted}
    with running(classification.path, FORWARDED_ALLOW_IPS="*", **extra) as server:
        server.request("GET", "/models", headers={"X-Forwarded-For": "192.0.2.7"})
        server.wait_for(f' INFO: +{logged} - "GET /models HTTP/1.1" 200')


@pytest.mark.parametrize("workers", ["1", "2"])
def test_each_line_has_its_time_and_those_of_a_request_its_id(classification: Synthetic, workers: str) -> None:
    began = dt.datetime.now(dt.UTC).replace(tzinfo=None) - dt.timedelta(milliseconds=1)
    with running(classification.path, DEMUR_WORKERS=workers) as server:
        for given in ("order-17", None, "of two words"):  # of another form than an id
            headers: dict[str, str] = {} if given is None else {"X-Request-ID": given}
            status, answered, _ = server.request("GET", "/nothing", headers=headers)
            identity = answered["x-request-id"]
            assert status == 404
            assert identity == given if given == "order-17" else re.fullmatch(r"[0-9a-f]{32}", identity)
            server.wait_for(f' - "GET /nothing HTTP/1.1" 404 Not Found [0-9.]+ms [0-9]+B request={identity}$')
        assert server.terminate() == 0
    ended = dt.datetime.now(dt.UTC).replace(tzinfo=None)
    for line in server.lines:
        moment, level, *_ = line.split()
        assert began <= dt.datetime.fromisoformat(moment.removesuffix("Z")) <= ended, line
        assert level in {"INFO:", "WARNING:"}, line
        assert ("request=" in line) == ('"GET' in line), line


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_line_names_the_key_and_the_model(classification: Synthetic, tmp_path: Path, form: str) -> None:
    key, entry = new_key("alice")
    (tmp_path / "keys").write_text(f"{entry.line}\n")
    extra = {"DEMUR_API_KEYS_FILE": str(tmp_path / "keys"), "DEMUR_LOG_FORMAT": form}
    with running(classification.path, **extra) as server:
        status, _, body = server.request("POST", "/predict", GOOD_BODY, {"Authorization": f"Bearer {key}"})
        assert status == 200
        line = server.wait_for(r'^.*"?POST /predict HTTP/1\.1.*$')[0]
        server.request("GET", "/nothing", headers={"Authorization": "Bearer no"})
        refused = server.wait_for(r"^.*GET /nothing HTTP/1\.1.*$")[0]
        health = server.request("GET", "/health/live")[0]
        assert health == 200
        server.wait_for("GET /health/live")
    assert "alice" not in refused
    if form == "text":
        assert re.search(rf"200 OK [0-9.]+ms {len(body)}B key=alice model=synthetic version=1 request=", line)
    else:
        found = json.loads(line)
        assert (found["status"], found["bytes"], found["key"]) == (200, len(body), "alice")
        assert (found["model"], found["version"]) == ("synthetic", "1")
        assert 0 < found["seconds"] < TIMEOUT


def test_a_line_says_where_the_client_did_not_get_all(classification: Synthetic) -> None:
    """And a HEAD, of which no body is sent, has no bytes."""
    many = json.dumps({"inputs": [GOOD] * 20_000}).encode()
    with running(classification.path, DEMUR_MAX_ROWS="100000", DEMUR_MAX_QUEUE_ROWS="100000") as server:
        with server.socket() as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.sendall(b"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(many) + many)
            assert connection.recv(15) == b"HTTP/1.1 200 OK"
        server.wait_for(r'"POST /predict HTTP/1.1" 200 OK [0-9.]+ms [0-9]+B incomplete model=synthetic version=1 ')
        server.request("HEAD", "/health/live")
        server.wait_for(r'"HEAD /health/live HTTP/1.1" 200 OK [0-9.]+ms 0B request=')
