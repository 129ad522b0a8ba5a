"""Small requests that are expensive to serve, and the health of a running service meanwhile."""

import contextlib
import gzip
import json
import socket
import struct
import time
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from PIL import Image

from tests.support.bundles import Synthetic
from tests.support.client import base64_text, encoded
from tests.support.health import checked_health
from tests.support.metrics import metric
from tests.support.processes import wait_until
from tests.support.server import TIMEOUT, Server, running

HEALTHY_SECONDS = 1.5  # on a busy machine; a tenth on an idle one
MIB = 2**10  # KiB
FILE = b'Content-Disposition: form-data; name="files"; filename="a.png"'
FIELD = b'Content-Disposition: form-data; name="files"'
GZIP = {"Content-Encoding": "gzip"}


@pytest.fixture(scope="module")
def server(images: Synthetic) -> Iterator[Server]:
    with running(images.path, DEMUR_MAX_PENDING_BYTES=str(64 * 2**20)) as started:
        yield started


def form(*parts: tuple[bytes, bytes]) -> bytes:
    return b"".join(b"--x\r\n" + head + b"\r\n\r\n" + data + b"\r\n" for head, data in parts) + b"--x--\r\n"


def kind(charset: str = "") -> dict[str, str]:
    return {"Content-Type": "multipart/form-data; boundary=x" + (f"; charset={charset}" if charset else "")}


def post(server: Server, body: bytes, headers: dict[str, str], path: str = "/predict") -> tuple[int, str]:
    status, _, answer = server.request("POST", path, body, headers)
    return status, json.loads(answer).get("code", "")


def column_png(rows: int) -> bytes:
    """One pixel wide, black, in a few hundred bytes of gzip."""
    packer = zlib.compressobj(9)
    pixels = b"".join(packer.compress(bytes(5 * 2**18)) for _ in range(rows // 2**18)) + packer.flush()
    chunks = (
        (b"IHDR", struct.pack(">IIBBBBB", 1, rows, 8, 6, 0, 0, 0)),
        (b"IDAT", pixels),
        (b"IEND", b""),
    )
    parts = (
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data)) for name, data in chunks
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def jpeg_of_scans(count: int, size: tuple[int, int]) -> bytes:
    """The last scan of a progressive JPEG of one grey is empty, and may come any number of times."""
    data = encoded(Image.new("L", size), "JPEG", progressive=True)
    last = data.rindex(b"\xff\xda")
    return data[:last] + data[last:-2] * count + data[-2:]


@pytest.mark.parametrize("charset", ["punycode", "idna", "utf-7", "undefined", "rot13", "\\xff", "x" * 3000])
def test_no_character_set_of_a_form_is_looked_up(server: Server, charset: str) -> None:
    body = form((FIELD + b"\r\nContent-Type: text/plain; charset=" + charset.encode(), b"a" * 200_000))
    with checked_health(server.port) as health:
        assert post(server, gzip.compress(body), kind(charset) | GZIP) == (422, "field")
    assert health.worst < HEALTHY_SECONDS


def test_a_form_of_many_parts_with_long_heads(server: Server) -> None:
    body = form(*[(FILE + b";" * 3900, b"")] * 1024)
    with checked_health(server.port) as health:
        assert post(server, gzip.compress(body), kind() | GZIP) == (422, "input")
    assert health.worst < HEALTHY_SECONDS
    assert post(server, form((FILE + b"; a=" + b"y" * 5000, b"")), kind()) == (400, "multipart")
    assert post(server, form((b"\r\n".join([b"X: y"] * 17 + [FILE]), b"")), kind()) == (400, "multipart")


def test_bodies_that_grow_when_they_are_decompressed(server: Server) -> None:
    packed = gzip.compress(b" " * (2**24 - 100))
    with checked_health(server.port) as health:
        for _ in range(10):
            assert post(server, packed, GZIP) == (400, "json")
    assert health.worst < HEALTHY_SECONDS


def test_an_image_one_pixel_wide(server: Server) -> None:
    png = gzip.compress(column_png(2**24), 9)
    assert len(png) < 1000
    before = server.start_peak()
    assert post(server, png, {"Content-Type": "image/png"} | GZIP) == (413, "input_too_large")
    assert server.peak_kib() - before < 50 * MIB


def test_scans_are_counted_before_they_are_decoded(server: Server) -> None:
    packed = gzip.compress(jpeg_of_scans(50_000, (4000, 4000)), 9)
    assert len(packed) < 10_000
    with checked_health(server.port) as health:
        assert post(server, packed, {"Content-Type": "image/jpeg"} | GZIP) == (413, "input_too_large")
    assert health.worst < HEALTHY_SECONDS


def test_clients_that_vanish_leave_no_work_behind(server: Server) -> None:
    """What they sent would keep a processor busy for seconds; the service stays as large as it was."""
    images = [base64_text(encoded(Image.new("RGBA", (4096, 4096))))] * 4
    body = json.dumps({"images": images}).encode()
    before, threads = server.start_peak(), threads_of(server)
    with checked_health(server.port) as health:
        for _ in range(10):
            with contextlib.closing(server.socket()) as connection:
                head = b"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body)
                connection.sendall(head + body)
        wait_until(lambda: in_flight(server) == 1)
    assert health.worst < HEALTHY_SECONDS
    assert server.peak_kib() - before < 50 * MIB
    assert threads_of(server) <= threads + 4


def threads_of(server: Server) -> int:
    return len([*Path(f"/proc/{server.process.pid}/task").iterdir()])


def in_flight(server: Server) -> float:
    return metric(server.request("GET", "/metrics")[2].decode(), "demur_http_requests_in_flight")


def test_an_id_that_the_answer_would_repeat_is_bounded(server: Server) -> None:
    tensor = {"name": "inputs", "shape": [1, 1, 4, 5], "datatype": "FP32", "data": [0.0] * 20}
    found = [ask_v2(server, {"id": "x" * size, "inputs": [tensor]})[0] for size in (1024, 1025, 2**23)]
    assert found == [200, 422, 422]


def ask_v2(server: Server, body: object) -> tuple[int, bytes]:
    status, _, answer = server.request("POST", "/v2/models/synthetic/infer", json.dumps(body).encode())
    return status, answer


def test_ends_in_time_after_all_this(server: Server) -> None:
    started = time.monotonic()
    assert server.terminate() == 0
    assert time.monotonic() - started < 15
    assert not [line for line in server.lines if "Traceback" in line]


def silent_socket(server: Server) -> socket.socket:
    """One that takes hardly anything of an answer."""
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.settimeout(TIMEOUT)
    connection.connect(("127.0.0.1", server.port))
    return connection


def test_answers_that_nobody_takes_count_until_they_are_sent(images: Synthetic) -> None:
    """Rows of a few bytes become answers of megabytes; with the room full of those, more are refused."""
    rows = {"inputs": [[[[0] * 5] * 4]] * 10_000}
    body = json.dumps(rows).encode()
    request = b"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body) + body
    room = 40 * 2**20
    limits = {"DEMUR_MAX_PENDING_BYTES": str(room), "DEMUR_MAX_ROWS": "10000", "DEMUR_MAX_QUEUE_ROWS": "10000"}
    with running(images.path, **limits) as server, contextlib.ExitStack() as held:
        status, _, answer = server.request("POST", "/predict", body)
        assert status == 200
        statuses = []
        while 429 not in statuses:
            connection = held.enter_context(contextlib.closing(silent_socket(server)))
            connection.sendall(request)
            statuses.append(int(connection.recv(12).split()[1]))
            assert len(statuses) <= 2 * room // len(answer)
        held.close()
        wait_until(lambda: server.request("POST", "/predict", body)[0] == 200)  # once the disconnects are noticed
