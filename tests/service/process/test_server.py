"""The running service, over real sockets: bad requests, its log, its memory."""

import contextlib
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from demur.service.schemas import PredictResponse, Problem
from tests.support.bundles import Synthetic
from tests.support.client import PROBLEM_TYPE, base64_text
from tests.support.processes import wait_until
from tests.support.requests import BAD_IMAGE_REQUESTS, BAD_REQUESTS, GOOD, JSON, Bad, image_file, odd_metadata
from tests.support.server import ACCESS, TIMEOUT, Server, running

MIB = 2**20
needs_memory_peaks = pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="needs Linux's /proc")
GOOD_BODY = json.dumps({"inputs": GOOD}).encode()


@pytest.fixture(scope="module")
def server(classification: Synthetic) -> Iterator[Server]:
    with running(classification.path) as started:
        yield started


@pytest.fixture(scope="module")
def image_server(images: Synthetic) -> Iterator[Server]:
    with running(images.path) as started:
        yield started


def post(server: Server, body: bytes, headers: dict[str, str] | None = None) -> tuple[int, dict[str, str], bytes]:
    return server.request("POST", "/predict", body, JSON if headers is None else headers)


def check_log(lines: list[str], statuses: list[int]) -> None:
    """One line of the access log for each request, and nothing else."""
    matches = [re.search(ACCESS, line) for line in lines]
    unexpected = [line for line, match in zip(lines, matches, strict=True) if match is None]
    assert not unexpected, "\n".join(unexpected)
    assert [int(match["status"]) for match in matches if match] == statuses


def check_refusals(server: Server, requests: list[Bad], marker: str) -> None:
    start = server.lines_so_far()
    for bad in requests:
        status, headers, body = post(server, bad.content, bad.headers)
        assert status == bad.status, (bad.name, body[:300])
        assert headers["content-type"] == PROBLEM_TYPE, bad.name
        assert Problem.model_validate_json(body).code == bad.code, bad.name
    check_log(server.log_of(marker, start), [bad.status for bad in requests])


def test_a_good_request_is_answered(server: Server) -> None:
    status, headers, body = post(server, GOOD_BODY)
    assert (status, headers["content-type"]) == (200, "application/json")
    assert "server" not in headers
    PredictResponse.model_validate_json(body)


@pytest.mark.parametrize("bad", BAD_REQUESTS, ids=lambda bad: bad.name)
def test_a_bad_request_is_one_line_in_the_log(server: Server, bad: Bad) -> None:
    check_refusals(server, [bad], f"/marker-{BAD_REQUESTS.index(bad)}")


def test_bad_images_are_one_line_each_in_the_log(image_server: Server) -> None:
    check_refusals(image_server, BAD_IMAGE_REQUESTS, "/marker-images")


def test_odd_metadata_of_a_sound_image_leaves_no_trace_in_the_log(image_server: Server) -> None:
    start = image_server.lines_so_far()
    for data in (image_file(), odd_metadata()):
        status, _, _ = post(image_server, json.dumps({"images": [base64_text(data)]}).encode())
        assert status in (200, 422)
    lines = image_server.log_of("/marker-metadata", start)
    assert len(lines) == 2, "\n".join(lines)


def test_a_token_beyond_the_vocabulary_is_one_line_in_the_log(tokens: Synthetic) -> None:
    with running(tokens.path) as token_server:
        start = token_server.lines_so_far()
        status, _, _ = post(token_server, b'{"inputs": [[0, 99]]}')
        check_log(token_server.log_of("/marker-token", start), [status])
        assert status == 422


def test_a_client_that_leaves_is_no_error_of_the_service(server: Server) -> None:
    start = server.lines_so_far()
    before = errors_and_failures(server)
    with contextlib.closing(server.socket()) as connection:
        connection.sendall(b"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{")
        wait_until_in_flight(server)
    wait_until_in_flight(server, 0)
    assert errors_and_failures(server) == before
    lines = server.log_of("/marker-left", start)
    assert not [line for line in lines if re.search(ACCESS, line) is None], "\n".join(lines)


def metric(server: Server, pattern: str) -> float:
    """The sum of the samples whose series match."""
    text = server.request("GET", "/metrics")[2].decode()
    return sum(float(value) for value in re.findall(rf"^{pattern} (\S+)$", text, re.MULTILINE))


def errors_and_failures(server: Server) -> tuple[float, float]:
    internal = metric(server, r'demur_errors_total\{reason="internal"\}')
    return internal, metric(server, r'demur_http_requests_total\{[^}]*status="500"\}')


def wait_until_in_flight(server: Server, others: int = 1) -> None:
    """Scrape until `others` requests besides the scrape are in flight."""
    wait_until(lambda: metric(server, "demur_http_requests_in_flight") == others + 1)


@needs_memory_peaks
@pytest.mark.parametrize("chunked", [False, True], ids=["with its length", "chunked"])
def test_a_body_of_100_mb_is_413_in_bounded_memory(server: Server, chunked: bool) -> None:
    size = 100_000_000
    headers = JSON if chunked else JSON | {"content-length": str(size)}
    post(server, GOOD_BODY)
    before = server.start_peak()
    body = (b" " * min(MIB, size - sent) for sent in range(0, size, MIB))
    with contextlib.closing(server.connect()) as connection:
        connection.request("POST", "/predict", body, headers, encode_chunked=chunked)
        response = connection.getresponse()
        assert response.status == 413
        assert Problem.model_validate_json(response.read()).code == "body_too_large"
    assert server.peak_kib() - before < 60 * 1024
    assert post(server, GOOD_BODY)[0] == 200


def test_a_body_that_never_ends_is_cut_off(server: Server) -> None:
    """Far beyond the limit nothing more is read: the response comes before the end of the body."""
    with contextlib.closing(server.socket()) as connection:
        connection.sendall(b"POST /predict HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
        chunk = b"%x\r\n%s\r\n" % (MIB, b" " * MIB)
        with contextlib.suppress(ConnectionError):
            for _ in range(300):
                connection.sendall(chunk)
        with contextlib.suppress(ConnectionError):
            assert b" 413 " in connection.recv(100)
    assert post(server, GOOD_BODY)[0] == 200


BOMBS = {
    "wrong images": b'{"images": [' + b"1," * 1_000_000 + b"1]}",
    "unknown fields": b"{" + b",".join(b'"%d":1' % i for i in range(200_000)) + b"}",
    "empty lists": b'{"inputs": [' + b"[]," * 600_000 + b"[]]}",
    "a long text among numbers": b'{"inputs": [' + b"1," * 100_000 + b'"' + b"x" * 1000 + b'"]}',
    "long texts": b'{"inputs": ["' + b"x" * 1_000_000 + b'", "' + b"y" * 1_000_000 + b'"]}',
}


@needs_memory_peaks
@pytest.mark.parametrize("name", BOMBS)
def test_two_megabytes_of_json_never_become_hundreds(server: Server, name: str) -> None:
    post(server, GOOD_BODY)
    before = server.start_peak()
    status, _, body = post(server, BOMBS[name])
    assert status in (413, 422), body[:300]
    assert server.peak_kib() - before < 200 * 1024


@pytest.mark.parametrize(
    "data",
    [
        b"hello\r\n\r\n",
        b"GET\r\n\r\n",
        b"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Length: -5\r\n\r\n",
        b"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Length: x\r\n\r\n",
        b"GET /" + b"a" * 200_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
    ],
    ids=["text", "no path", "negative length", "no number", "long path", "TLS"],
)
def test_what_is_no_http_is_no_error_of_the_service(server: Server, data: bytes) -> None:
    start = server.lines_so_far()
    with contextlib.closing(server.socket()) as connection, contextlib.suppress(ConnectionError):
        connection.settimeout(TIMEOUT)
        connection.sendall(data)
        assert connection.recv(100).startswith(b"HTTP/1.1 4")
    assert not [line for line in server.log_of("/marker-http", start) if "Traceback" in line]


def test_the_access_log_can_be_left_out(classification: Synthetic) -> None:
    with running(classification.path, DEMUR_ACCESS_LOG="false") as quiet:
        assert post(quiet, GOOD_BODY)[0] == 200
    assert not [line for line in quiet.lines if re.search(ACCESS, line)]
