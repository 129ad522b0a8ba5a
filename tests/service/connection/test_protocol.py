"""The protocol over real sockets: everything that comes before a body is bounded in size and in time."""

import contextlib
import json
import re
import time
from collections.abc import Iterator

import pytest
from fastapi import Response
from starlette.types import Receive, Scope, Send

from demur.service.connection.protocol import MAX_HEAD_BYTES as LIMIT
from demur.service.connection.start_queue import StartQueue
from demur.service.http.exchange import begin_exchange
from demur.service.schemas import PredictResponse
from tests.support.bundles import Synthetic
from tests.support.host import hosting
from tests.support.requests import GOOD
from tests.support.server import TIMEOUT, Server, running
from tests.support.sockets import exchange, refused

READ = b"GET /health/ready HTTP/1.1\r\nHost: x\r\n\r\n"
BODY = json.dumps({"inputs": GOOD}).encode()
PREDICT = b"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(BODY)
SLOW_PREDICT = b"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{"
CHUNKED = b"POST /predict HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.fixture(scope="module")
def server(classification: Synthetic) -> Iterator[Server]:
    """Patience beyond the length of a test."""
    with running(classification.path, DEMUR_CLIENT_TIMEOUT_SECONDS=str(TIMEOUT * 30)) as started:
        yield started


def head(size: int, *, fields: int = 1, last: bytes = b"Connection: close\r\n") -> bytes:
    """A head of exactly `size` bytes, its room filled with so many fields."""
    start = b"GET /health/live HTTP/1.1\r\nHost: x\r\n" + last
    room = size - len(start) - 2
    lines = [b"X-%05d: " % i for i in range(fields)]
    filling = room - sum(map(len, lines)) - 2 * fields
    lines[-1] += b"y" * filling
    whole = start + b"".join(line + b"\r\n" for line in lines) + b"\r\n"
    assert len(whole) == size
    return whole


def errors_of(server: Server, reason: str) -> float:
    text = server.request("GET", "/metrics")[2].decode()
    return sum(map(float, re.findall(rf'^demur_errors_total{{reason="{reason}"}} (\S+)$', text, re.MULTILINE)))


@pytest.mark.parametrize("fields", [1, 300], ids=["one long field", "many fields"])
def test_a_head_up_to_the_limit_is_served_and_one_byte_more_is_431(server: Server, fields: int) -> None:
    assert [status for status, _, _ in exchange(server, head(LIMIT, fields=fields))] == [200]
    before = errors_of(server, "head_too_large")
    assert refused(exchange(server, head(LIMIT + 1, fields=fields)), 431) == "head_too_large"
    assert errors_of(server, "head_too_large") == before + 1


@pytest.mark.parametrize("step", [1, 7, 1000, LIMIT])
def test_how_a_head_is_cut_into_pieces_does_not_matter(server: Server, step: int) -> None:
    for size, status in ((LIMIT, 200), (LIMIT + 1, 431)):
        whole = head(size)
        found = exchange(server, *(whole[start : start + step] for start in range(0, size, step)))
        assert [status for status, _, _ in found] == [status]


@pytest.mark.parametrize(
    "data",
    [
        b"GET /" + b"a" * 10 * LIMIT,
        b"GET /health/live HTTP/1.1\r\nX: " + b"a" * 10 * LIMIT,
        b"GET /health/live HTTP/1.1\r\n" + b"a" * 10 * LIMIT,
        b"GET /health/live HTTP/1.1\r\nX:" + b" " * 10 * LIMIT,
        b"GET /health/live HTTP/1.1\r\n" + b"a:\r\n" * LIMIT,
    ],
    ids=["path", "value", "name", "white space", "empty fields"],
)
def test_an_endless_head_is_refused_before_it_ends(server: Server, data: bytes) -> None:
    assert refused(exchange(server, data), 431) == "head_too_large"


def test_an_endless_head_is_refused_however_much_more_is_sent(server: Server) -> None:
    endless = (b"y" * LIMIT for _ in range(1000))
    assert refused(exchange(server, b"GET / HTTP/1.1\r\nX: ", *endless), 431) == "head_too_large"


@pytest.mark.parametrize(
    ("start", "more"),
    [(b"0\r\nX: ", b"y" * LIMIT), (b"1;name=", b"y" * LIMIT), (b"0\r\n", b"X: y\r\n" * (LIMIT // 6))],
    ids=["a long trailer", "a chunk's extension", "many trailers"],
)
def test_what_stands_around_chunks_is_bounded_too(server: Server, start: bytes, more: bytes) -> None:
    pieces = (more for _ in range(100))
    assert refused(exchange(server, CHUNKED + start, *pieces), 431) == "head_too_large"


def test_trailers_are_no_headers(server: Server) -> None:
    """A field after the body cannot change what was decided by the head."""
    trailer = b"X-Request-Timeout: nonsense\r\nContent-Type: text/plain\r\n"
    start = b"%s%x\r\n%s\r\n0\r\n%s\r\n" % (CHUNKED, len(BODY), BODY, trailer)
    (first, _, body), (second, _, _) = exchange(server, start + head(200))
    assert (first, second) == (200, 200)
    PredictResponse.model_validate_json(body)


def test_each_request_of_a_connection_has_the_whole_limit(server: Server) -> None:
    large = head(LIMIT, last=b"X-Nothing: at-all\r\n")
    assert [status for status, _, _ in exchange(server, large * 5 + head(200))] == [200] * 6
    assert refused(exchange(server, large * 2 + head(LIMIT + 10)), 200, 200, 431) == "head_too_large"


def test_keep_alive_and_pipelining_work_as_before(server: Server) -> None:
    with contextlib.closing(server.connect()) as connection:
        for _ in range(3):
            connection.request("POST", "/predict", BODY)
            response = connection.getresponse()
            assert response.status == 200
            assert response.getheader("connection") is None
            response.read()
    requests = [PREDICT + BODY, READ, PREDICT + BODY, b"GET /nothing HTTP/1.1\r\nHost: x\r\n\r\n", head(100)]
    for pieces in (requests, [b"".join(requests)], [bytes([byte]) for byte in b"".join(requests)]):
        found = exchange(server, *pieces)
        assert [status for status, _, _ in found] == [200, 200, 200, 404, 200]
        assert [b"predictions" in body for _, _, body in found] == [True, False, True, False, False]


@pytest.mark.parametrize("bad", [b"\x00\r\n\r\n", b"GET / HTTP/1.1\r\nContent-Length: x\r\n\r\n", head(LIMIT + 10)])
def test_a_refusal_never_overtakes_an_earlier_answer(server: Server, bad: bytes) -> None:
    found = exchange(server, (PREDICT + BODY) * 3 + bad + READ)
    refused(found, 200, 200, 200, 431 if len(bad) > LIMIT else 400)


def test_a_bad_body_is_refused_and_not_waited_for(server: Server) -> None:
    assert refused(exchange(server, CHUNKED, b"nonsense\r\n"), 400) == "http"
    assert refused(exchange(server, READ + CHUNKED + b"nonsense\r\n"), 200, 400) == "http"


def test_an_offer_to_upgrade_is_ignored(server: Server) -> None:
    """As Java's client and `curl --http2` make it: the answer is HTTP/1.1, and what follows is read."""
    start = server.lines_so_far()
    offer = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA\r\n\r\n"
    chunked = b"3\r\n%s\r\n%x\r\n%s\r\n0\r\n\r\n" % (BODY[:3], len(BODY) - 3, BODY[3:])
    whole = READ[:-2] + offer + PREDICT[:-2] + offer + BODY + CHUNKED[:-2] + offer + chunked + head(100)
    for step in (len(whole), 1):
        found = exchange(server, *(whole[start : start + step] for start in range(0, len(whole), step)))
        assert [(status, b"predictions" in body) for status, _, body in found] == [
            (200, False),
            (200, True),
            (200, True),
            (200, False),
        ]
    assert not [line for line in server.log_of("/marker-upgrade", start) if "WARNING" in line]


def test_a_body_with_an_offer_to_upgrade_is_no_request(server: Server) -> None:
    """It is what it says it is: else a request could be hidden in it from a proxy in front."""
    offer = b"Connection: Upgrade\r\nUpgrade: websocket\r\nContent-Length: %d\r\n\r\n%s" % (len(READ), READ)
    found = exchange(server, b"POST /predict HTTP/1.1\r\nHost: x\r\n" + offer + head(100))
    assert [status for status, _, _ in found] == [400, 200]
    wrong = b"Connection: Upgrade\r\nUpgrade: x\r\nTransfer-Encoding: chunked, gzip\r\n\r\n"
    assert refused(exchange(server, b"POST /predict HTTP/1.1\r\nHost: x\r\n" + wrong), 400) == "http"


@pytest.mark.parametrize(
    "data",
    [
        b"hello\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 100,
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET /\xff HTTP/1.1\r\nHost: x\r\n\r\n",
        b"CONNECT secret.example:443 HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET /health/live HTTP/1.1\r\nX : y\r\n\r\n",
        b"GET /health/live HTTP/1.1\r\nX: \x01\r\n\r\n",
        b"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n{}",
        b"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST /predict HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked, gzip\r\n\r\n0\r\n\r\n",
    ],
    ids=str,
)
def test_garbage_is_400_and_tells_nothing(server: Server, data: bytes) -> None:
    start = server.lines_so_far()
    found = exchange(server, data)
    assert refused(found, 400) == "http"
    assert found[0][2].count(b"{") == 1
    for word in (b"uvicorn", b"httptools", b"Traceback", b"secret", b".py"):
        assert word not in found[0][2]
    assert not [line for line in server.log_of("/marker-garbage", start) if "Traceback" in line or "secret" in line]


@pytest.mark.parametrize(
    "fields", [b"", b"Host: a\r\nHost: b\r\n", b"Host: a\r\nhost: a\r\n"], ids=["none", "two", "the same twice"]
)
def test_a_request_names_one_host(server: Server, fields: bytes) -> None:
    assert refused(exchange(server, b"GET /health/live HTTP/1.1\r\n" + fields + b"\r\n"), 400) == "http"
    found = exchange(server, b"GET /health/live HTTP/1.0\r\n\r\n")
    assert [status for status, _, _ in found] == [200]


def test_under_v2_a_refusal_has_the_form_of_that_protocol(server: Server) -> None:
    ((status, headers, body),) = exchange(server, b"GET /v2/models HTTP/1.1\r\nX: " + b"y" * LIMIT)
    assert (status, headers["content-type"]) == (431, "application/json")
    assert [*json.loads(body)] == ["error"]


def test_the_server_is_well_afterwards(server: Server) -> None:
    assert server.request("POST", "/predict", BODY)[0] == 200
    assert not [line for line in server.lines if "Traceback" in line or "Exception" in line]


class Arrivals(list[float]):
    """An application that notes when requests began to arrive, by what it is told."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.append(begin_exchange(scope).arrived)
        await Response(b"served")(scope, receive, send)


def test_a_request_knows_when_its_first_byte_came() -> None:
    """Not when its head was complete, and of each request on a connection anew."""
    arrivals = Arrivals()
    with hosting(arrivals) as host, host.connection() as connection:
        for _ in range(2):
            began = time.monotonic()
            connection.sendall(b"GET /a HTTP/1.1\r\n")
            host.exchange(b"GET /b HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")  # meanwhile
            connection.sendall(b"Host: x\r\n\r\n")
            assert connection.recv(65536).endswith(b"served")
            other, own = arrivals[-2:]
            assert began <= own <= other


def test_a_client_s_own_deadline_holds_while_its_body_arrives(server: Server) -> None:
    head = b"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\nX-Request-Timeout: 0.2\r\n\r\n"
    ((status, _, body),) = exchange(server, head + b'{"inputs": ')
    assert (status, json.loads(body)["code"]) == (504, "deadline_client")


def test_a_body_that_would_be_too_large_is_not_asked_for(server: Server) -> None:
    head = b"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Length: 20000000\r\nExpect: 100-continue\r\n\r\n"
    ((status, headers, body),) = exchange(server, head)
    assert (status, json.loads(body)["code"]) == (413, "body_too_large")
    assert headers["connection"] == "close"


def test_where_too_many_wait_the_next_is_refused_and_its_connection_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    with hosting(Arrivals()) as host, host.connection() as connection:
        with monkeypatch.context() as full:
            full.setattr(StartQueue, "submit", lambda *_, **__: False)
            connection.sendall(PREDICT.replace(b"\r\n\r\n", b"\r\nX-Request-ID: mine\r\n\r\n") + BODY)
            answer = connection.recv(65536)
            assert answer.startswith(b"HTTP/1.1 503 ")
            assert b"retry-after: 1\r\n" in answer
            assert b"x-request-id: mine\r\n" in answer.lower()
            assert json.loads(answer.partition(b"\r\n\r\n")[2])["code"] == "busy"
        connection.sendall(PREDICT + BODY)
        assert connection.recv(65536).endswith(b"served")
