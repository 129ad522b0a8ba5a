"""deploy/nginx/nginx.conf, run by a real nginx in front of the real service."""

import contextlib
import gzip
import http
import json
import re
import select
import socket
import statistics
import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from demur.service.http.middleware import SECURITY_HEADERS
from demur.service.http.request_id import FORM
from demur.service.schemas import PredictResponse, Problem
from tests.support.bundles import FEATURE_SPEC, write_linear
from tests.support.client import PROBLEM_TYPE
from tests.support.nginx import CONFIGURATION, needs_nginx, proxying
from tests.support.requests import GOOD, JSON
from tests.support.server import TIMEOUT, Server, running
from tests.support.sockets import answers

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # the client's own, of gevent and of its packaging
    import tritonclient.http as triton

pytestmark = [pytest.mark.slow, needs_nginx]
BODY = json.dumps({"inputs": GOOD}).encode()
HEALTH = ("/health/live", "/health/ready", "/v2/health/live", "/v2/health/ready")
LARGE = b" " * (16 * 2**20 + 1)
# Of one line of the log, after the address; the id is a group.
LOGGED = r'^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[+-]\d\d:\d\d 127\.0\.0\.1 "%s" %d \d+ [\d.]+ request=(\S+)$'
UNFINISHED = b"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{"


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    bundle = write_linear(tmp_path_factory.mktemp("bundle") / "bundle", outputs=3, spec=FEATURE_SPEC)
    with running(bundle.path, DEMUR_MAX_PENDING_BYTES="200") as started:
        yield started


@pytest.fixture(scope="module")
def proxy(service: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with proxying(service.port, tmp_path_factory.mktemp("nginx")) as started:
        yield started


@pytest.fixture
def hasty(service: Server, tmp_path: Path) -> Iterator[Server]:
    """Waits a second where the file says ten."""
    waits = {f"{name} 10s": f"{name} 1s" for name in ("client_header_timeout", "client_body_timeout")}
    with proxying(service.port, tmp_path, waits) as started:
        yield started


def refused(found: tuple[int, dict[str, str], bytes], status: int) -> Problem:
    assert found[0] == status
    assert found[1]["content-type"] == PROBLEM_TYPE
    assert {name.decode(): value.decode() for name, value in SECURITY_HEADERS}.items() <= found[1].items()
    assert FORM.fullmatch(found[1]["x-request-id"])
    problem = Problem.model_validate_json(found[2])
    assert problem.status == status
    return problem


def connections_to(port: int) -> int:
    """How many connections the system has to a port of this machine, seen from the side of the server."""
    lines = Path("/proc/net/tcp").read_text().splitlines()[1:]
    return sum(line.split()[1].endswith(f":{port:04X}") and line.split()[3] == "01" for line in lines)


def test_predictions_and_health_pass(proxy: Server) -> None:
    assert proxy.request("GET", "/health/live")[0] == proxy.request("GET", "/health/ready")[0] == 200
    for body, headers in ((BODY, JSON), (gzip.compress(BODY), JSON | {"content-encoding": "gzip"})):
        status, found, answer = proxy.request("POST", "/predict", body, headers)
        assert (status, found["content-type"]) == (200, "application/json")
        PredictResponse.model_validate_json(answer)
    chunks = (BODY[start : start + 1] for start in range(len(BODY)))
    assert proxy.request("POST", "/predict", chunks, JSON)[0] == 200
    problem = refused(proxy.request("POST", "/predict", b"{", JSON), 400)  # the service's own, unchanged
    assert problem.code == "json"


def test_the_real_tritonclient_passes(proxy: Server) -> None:
    client = triton.InferenceServerClient(f"127.0.0.1:{proxy.port}")
    assert client.is_server_ready()
    assert client.is_model_ready("synthetic")
    values = np.array([[1, 2, 3, 4], [5, 6, 7, 8]], np.float32)
    answers = []
    for binary, compression in ((True, None), (False, None), (True, "gzip")):
        (name,) = (one["name"] for one in client.get_model_metadata("synthetic")["inputs"])
        tensor = triton.InferInput(name, [2, 4], "FP32")
        tensor.set_data_from_numpy(values, binary_data=binary)
        wanted = [triton.InferRequestedOutput("probabilities", binary_data=binary)]
        found = client.infer("synthetic", [tensor], outputs=wanted, request_compression_algorithm=compression)
        answers.append(found.as_numpy("probabilities"))
    assert answers[0].shape == (2, 3)
    for other in answers[1:]:
        np.testing.assert_allclose(other, answers[0], rtol=1e-6)
    client.close()


def test_a_busy_service_says_when_to_come_again(proxy: Server, service: Server) -> None:
    with contextlib.ExitStack() as stack:
        end, found = time.monotonic() + TIMEOUT, proxy.request("POST", "/predict", BODY, JSON)
        while found[0] == 200:  # an unfinished request that is read beside another body is refused itself
            assert time.monotonic() < end
            busy = stack.enter_context(contextlib.closing(service.socket()))
            busy.sendall(b"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Length: 300\r\n\r\n" + b" " * 200)
            found = proxy.request("POST", "/predict", BODY, JSON)
    assert refused(found, 429).code == "queue_full"
    assert int(found[1]["retry-after"]) >= 1


def test_what_is_too_large_is_refused_by_the_proxy(proxy: Server, service: Server) -> None:
    start = service.lines_so_far()
    assert refused(proxy.request("POST", "/predict", LARGE, JSON), 413).code == "body_too_large"
    chunked = (LARGE[: 2**20] for _ in range(17))
    assert refused(proxy.request("POST", "/predict", chunked, JSON), 413)
    assert refused(proxy.request("GET", "/" + "x" * 9000), 414).code == "head_too_large"
    assert refused(proxy.request("GET", "/models", headers={"X": "y" * 9000}), 431).code == "head_too_large"
    status, headers, body = proxy.request("POST", "/v2/models/synthetic/infer", LARGE)
    assert (status, headers["content-type"], [*json.loads(body)]) == (413, "application/json", ["error"])
    assert FORM.fullmatch(headers["x-request-id"])
    with contextlib.closing(proxy.socket()) as connection:
        connection.sendall(b"nonsense\r\n\r\n")
        (found,) = answers(connection)
    assert refused(found, 400).code == "http"
    # Refused uploads of other tests are logged when their connections end; none of these requests would get a 429.
    assert [line for line in service.log_of("/marker-large", start) if " 429 " not in line] == []


OUTSIDE = [
    "/metrics",
    "/docs",
    "/openapi.json",
    "/docs/assets/x",
    "/v2/repository",
    "/v2/repository/index",
    "/models/../metrics",
    "/models/%2e%2e/metrics",
    "/models/x%2F..%2F..%2Fmetrics",
    "/predict/../metrics",
    "/./metrics",
    "/%6Detrics",
    "/metrics/",
    "/metrics?/../predict",
    "/metricsx",
    "/",
    "/predict/",
    "/predictx",
    "/health",
    "/health/other",
    "/.problem",
    "/.error",
    "/nginx_status",
    "http://x/metrics",
]


@pytest.mark.parametrize("path", OUTSIDE)
def test_strangers_reach_nothing_else(path: str, proxy: Server, service: Server) -> None:
    start = service.lines_so_far()
    assert refused(proxy.request("GET", path), 404).code == "not_found"
    assert [line for line in service.log_of("/marker-outside", start) if "GET" in line or "POST" in line] == []


@pytest.mark.parametrize("path", ["/metrics/../predict", "/metrics%3F/../predict", "/metrics/..%2Fmodels"])
def test_what_the_proxy_reads_otherwise_leads_nowhere(path: str, proxy: Server) -> None:
    assert refused(proxy.request("GET", path), 404).code == "not_found"


def test_what_clients_need_passes(proxy: Server) -> None:
    for path in ("/model", "/models", "/models/synthetic", "/v2", "/v2/models/synthetic", "/v2/health/ready"):
        assert proxy.request("GET", path)[0] == 200
    assert proxy.request("POST", "/models/synthetic/predict", BODY, JSON)[0] == 200
    assert refused(proxy.request("POST", "/feedback", b"{}", JSON), 404).detail != "There is nothing at this path."


REFUSED = {
    b"POST /predict HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip\r\n\r\n": (501, "not_implemented"),
    b"GET /models HTTP/3.7\r\nHost: x\r\n\r\n": (505, "http"),
    b"TRACE /models HTTP/1.1\r\nHost: x\r\n\r\n": (405, "method_not_allowed"),
    b"GET /models HTTP/1.1\r\n\r\n": (400, "http"),
}


@pytest.mark.parametrize("sent", REFUSED)
def test_what_the_proxy_refuses_is_a_problem(sent: bytes, proxy: Server) -> None:
    with contextlib.closing(proxy.socket()) as connection:
        connection.sendall(sent)
        (found,) = answers(connection)
    status, code = REFUSED[sent]
    problem = refused(found, status)
    assert (problem.code, problem.title) == (code, http.HTTPStatus(status).phrase)


def test_a_slow_client_costs_the_service_no_connection(hasty: Server, service: Server) -> None:
    with contextlib.ExitStack() as slow:
        clients = [slow.enter_context(contextlib.closing(hasty.socket())) for _ in range(60)]
        for number, client in enumerate(clients):
            client.sendall(b"G" if number % 2 else UNFINISHED)
        before = connections_to(service.port)
        assert hasty.request("GET", "/health/ready")[0] == 200
        assert connections_to(service.port) <= before + 1  # of the one that asked
        for client in clients[1::2]:  # one byte after the other: the head as a whole has its time
            client.settimeout(0.01)
        waiting = set(clients[1::2])
        while waiting:
            for client in [*waiting]:
                with contextlib.suppress(TimeoutError, BrokenPipeError):
                    try:
                        client.sendall(b"E")
                        gone = client.recv(100) == b""
                    except ConnectionResetError:
                        gone = True
                    if gone:
                        waiting.remove(client)
        assert not any(b"HTTP" in one.recv(100) for one in clients[::2] if _still_open(one))


def _still_open(client: socket.socket) -> bool:
    """False once the proxy has closed it; a reset is an end too."""
    try:
        return client.recv(1, socket.MSG_PEEK) != b""
    except ConnectionResetError:
        return False


def test_one_address_has_no_more_than_its_share(service: Server, tmp_path: Path) -> None:
    match = re.search(r"limit_conn of_one_address (\d+);", CONFIGURATION.read_text())
    assert match is not None
    with proxying(service.port, tmp_path) as proxy, contextlib.ExitStack() as open_ones:
        clients = [open_ones.enter_context(contextlib.closing(proxy.socket())) for _ in range(int(match[1]) + 1)]
        for client in clients:
            client.sendall(UNFINISHED)
        assert select.select(clients, [], [], TIMEOUT)[0]  # one is refused: the others are counted
        found = proxy.request("GET", "/models")
        assert refused(found, 429).code == "too_many_requests"
        assert found[1]["retry-after"] == "1"
        assert proxy.request("GET", "/v2/models/synthetic")[0] == 429
        for path in HEALTH:
            assert proxy.request("GET", path)[0] == 200
        assert proxy.request("GET", "/models")[0] == 429  # still


@pytest.mark.parametrize(
    ("zone", "header"), [("of_one_key", "X-API-Key: {}"), ("of_one_bearer", "Authorization: bearer {}")]
)
def test_one_key_has_no_more_than_its_share(zone: str, header: str, service: Server, tmp_path: Path) -> None:
    match = re.search(rf"limit_conn {zone} (\d+);", CONFIGURATION.read_text())
    assert match is not None
    limit = 5
    fewer = {match[0]: f"limit_conn {zone} {limit};"}
    named = UNFINISHED.replace(b"Host: x", b"Host: x\r\n" + header.format("theirs").encode())
    with proxying(service.port, tmp_path, fewer) as proxy, contextlib.ExitStack() as open_ones:
        clients = [open_ones.enter_context(contextlib.closing(proxy.socket())) for _ in range(limit + 1)]
        for client in clients:
            client.sendall(named)
        assert select.select(clients, [], [], TIMEOUT)[0]  # one is refused: the others are counted
        for key, status in (("theirs", 429), ("other", 200)):
            name, value = header.format(key).split(": ")
            assert proxy.request("GET", "/models", headers={name: value})[0] == status
        other = header.format("\ttheirs" if "bearer" in header else "theirs\r\nX-API-Key: other")
        with contextlib.closing(proxy.socket()) as client:  # in another spelling, or beside another one
            client.sendall(b"GET /models HTTP/1.1\r\nHost: x\r\nConnection: close\r\n" + other.encode() + b"\r\n\r\n")
            assert client.makefile("rb").readline().split()[1] == b"429"
        assert proxy.request("GET", "/models")[0] == 200


@pytest.mark.parametrize("path", HEALTH)
def test_a_health_check_holds_no_body(path: str, proxy: Server) -> None:
    """Their number is not limited, so that bodies of theirs could fill the disk."""
    assert proxy.request("POST", path, b" " * 1025)[0] == 413
    assert proxy.request("POST", path, iter([b" " * 1025]))[0] == 413
    assert proxy.request("POST", path, b" ")[0] == 405


def test_the_service_logs_the_client_and_believes_no_other(proxy: Server, service: Server) -> None:
    start = service.lines_so_far()
    with contextlib.closing(socket.create_connection(("127.0.0.1", proxy.port), TIMEOUT, ("127.0.0.2", 0))) as client:
        client.sendall(
            b"GET /models?api_key=s3cret HTTP/1.1\r\nHost: x\r\nX-Forwarded-For: 192.0.2.9\r\nConnection: close\r\n\r\n"
        )
        assert answers(client)[0][0] == 200
    service.wait_for(r' INFO: +127\.0\.0\.2:0 - "GET /models HTTP/1\.1" 200', start)
    proxy.wait_for(r' 127\.0\.0\.2 "GET /models" 200 ')
    proxy.request("POST", "/predict?api_key=s3cret", LARGE, JSON)
    proxy.wait_for(r'"POST /predict" 413 ')
    assert not [line for line in proxy.lines + service.lines if "s3cret" in line]


IDENTIFIED = {
    "/models": 200,
    "/health/live": 200,
    "/nothing": 404,
    "/v2/nothing": 404,
    "/" + "x" * 9000: 414,
}


@pytest.mark.parametrize("path", IDENTIFIED)
def test_each_answer_and_its_line_of_the_log_have_the_time_and_the_id(path: str, proxy: Server) -> None:
    start, status = len(proxy.lines), IDENTIFIED[path]
    found = proxy.request("GET", path)
    assert found[0] == status
    assert re.fullmatch("[0-9a-f]{32}", found[1]["x-request-id"])
    asked = f"GET {path[:20]}x*"  # of a line that is too long, nginx logs what fits its buffer
    assert proxy.wait_for(LOGGED % (asked, status), start)[1] == found[1]["x-request-id"]


@pytest.mark.parametrize("path", ["/models", "/nothing", "/v2/nothing"])
def test_the_id_is_the_client_s_where_it_has_the_form(path: str, proxy: Server) -> None:
    for given, kept in (("from-the-client", True), ("a" * 128, True), ("a" * 129, False), ("a b", False)):
        start = len(proxy.lines)
        status, headers, _ = proxy.request("GET", path, headers={"X-Request-ID": given})
        assert (headers["x-request-id"] == given) is kept
        assert proxy.wait_for(LOGGED % (f"GET {path}", status), start)[1] == headers["x-request-id"]


def test_the_log_knows_a_client_that_left(proxy: Server) -> None:
    start = len(proxy.lines)
    with contextlib.closing(proxy.socket()) as client:
        client.sendall(UNFINISHED.replace(b"\r\n\r\n", b"\r\nX-Request-ID: left\r\n\r\n"))
    assert proxy.wait_for(LOGGED % ("POST /predict", 400), start)[1] == "left"


def test_a_service_that_does_not_answer_is_a_problem(tmp_path: Path, proxy: Server) -> None:
    with contextlib.closing(socket.socket()) as unused:
        unused.bind(("127.0.0.1", 0))
        with proxying(unused.getsockname()[1], tmp_path) as alone:
            assert refused(alone.request("GET", "/models"), 502).code == "unavailable"
            status, _, body = alone.request("GET", "/v2")
            assert (status, [*json.loads(body)]) == (502, ["error"])


def test_a_flood_of_tiny_chunks_leaves_health_quick(proxy: Server, service: Server) -> None:
    """20 connections send chunks of one byte as fast as the proxy takes them."""
    start, sent, stop = service.lines_so_far(), [0] * 20, threading.Event()

    def flood(number: int) -> None:
        tiny = b"1\r\nx\r\n" * 2**13
        while not stop.is_set():
            with contextlib.suppress(OSError), contextlib.closing(proxy.socket()) as client:
                client.sendall(b"POST /predict HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
                while not stop.is_set():
                    client.sendall(tiny)
                    sent[number] += len(tiny)

    threads = [threading.Thread(target=flood, args=(number,)) for number in range(20)]
    for thread in threads:
        thread.start()
    seconds: list[float] = []
    try:
        while min(sent) < 2**20 or len(seconds) < 200:
            began = time.monotonic()
            assert service.request("GET", "/health/ready")[0] == 200
            seconds.append(time.monotonic() - began)
    finally:
        stop.set()
        for thread in threads:
            thread.join(TIMEOUT)
    print(f"median {statistics.median(seconds):.3f} s, longest {max(seconds):.3f} s, {sum(sent) / 2**20:.0f} MiB sent")
    assert statistics.median(seconds) < 0.5
    assert not [line for line in service.lines[start:] if "Traceback" in line]
