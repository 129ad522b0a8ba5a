"""Bodies of every media type, compressed or not, late, too many at once: the same answer or a clear refusal."""

import asyncio
import gzip
import io
import json
import struct
import threading
import zlib
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.requests import Request
from starlette.types import Message

from demur.service.http import bodies
from demur.service.http.admission import ByteBudget
from demur.service.http.problems import ProblemError
from demur.service.inference.predictor import Predictor
from demur.service.settings import Settings
from tests.support.bundles import Synthetic
from tests.support.client import Client, encoded, problem, serving, up_to_rounding
from tests.support.requests import GOOD, image_file

BODY = json.dumps({"inputs": GOOD}).encode()
NPY = {"content-type": "application/x-npy"}
PACKED = gzip.compress(BODY, mtime=0)
LIMIT = 100_000


@pytest.fixture(scope="module")
def small(classification: Synthetic) -> Iterator[Client]:
    limits = Settings(max_body_bytes=LIMIT, max_rows=16)
    with serving(Predictor.load(classification.path), limits) as started:
        yield started


def npy(array: Any) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array, allow_pickle=True)
    return stream.getvalue()


def predictions(response: Any) -> Any:
    assert response.status_code == 200, response.text
    return response.json()["predictions"]


@pytest.mark.parametrize(
    ("coding", "pack"), [("gzip", gzip.compress), ("deflate", zlib.compress), ("x-gzip", gzip.compress)]
)
def test_a_compressed_body_is_the_same_body(client: Client, coding: str, pack: Any) -> None:
    found = client.predict(pack(BODY), content_encoding=coding)
    assert predictions(found) == predictions(client.predict(BODY))


@pytest.mark.parametrize("count", [2, 3, 1000])
def test_a_gzip_body_of_several_members_is_their_data_in_turn(client: Client, count: int) -> None:
    """As `pigz` and `bgzip` write them; an empty member is none to stop at."""
    cut = len(BODY) // 2
    members = [BODY[:cut], *[b""] * (count - 2), BODY[cut:]]
    packed = b"".join(gzip.compress(part, mtime=0) for part in members)
    assert predictions(client.predict(packed, content_encoding="gzip")) == predictions(client.predict(BODY))


def test_who_is_refused_for_want_of_memory_holds_none_of_it_for_others() -> None:
    """Also while the rest of its body comes, which is thrown away."""
    budget, held = ByteBudget(100), []
    chunks = [b"x" * 30, b"x" * 30, b"x" * 30]

    async def receive() -> Message:
        held.append(budget.used)
        return {"type": "http.request", "body": chunks.pop(), "more_body": bool(chunks)}

    async def read() -> None:
        request = Request({"type": "http", "headers": []}, receive)
        with budget.lease() as other, budget.lease() as lease, ThreadPoolExecutor(1) as threads:
            other.grow(60)
            await bodies.read_body(request, 1000, 5.0, lease, threads)

    with pytest.raises(ProblemError) as error:
        asyncio.run(read())
    assert error.value.problem.code == "queue_full"
    assert held == [60, 90, 60]


@pytest.mark.parametrize("tail", [b"more", PACKED[:20], gzip.compress(b"") * 1000])
def test_what_follows_a_gzip_member_must_be_another_one(client: Client, tail: bytes) -> None:
    problem(client.predict(PACKED + tail, content_encoding="gzip"), 400, "content_encoding")


@pytest.mark.parametrize("path", ["/predict", "/v2/models/synthetic/infer"])
def test_a_byte_order_mark_is_left_out(client: Client, path: str) -> None:
    tensor = {"name": "inputs", "shape": [1, len(GOOD)], "datatype": "FP32", "data": GOOD}
    body = json.dumps({"inputs": GOOD if path == "/predict" else [tensor]})
    for text in (body, "\ufeff" + body):
        response = client.request("POST", path, content=text.encode(), headers={"content-type": "application/json"})
        assert response.status_code == 200, response.text


@pytest.mark.parametrize("coding", ["gzip", "deflate"])
@pytest.mark.parametrize("data", [b"", BODY, PACKED[:-4], PACKED + b"more"])
def test_a_damaged_compression_is_refused(client: Client, coding: str, data: bytes) -> None:
    found = problem(client.predict(data, content_encoding=coding), 400, "content_encoding")
    assert found.field == "Content-Encoding"


def test_a_compression_bomb_is_refused(small: Client) -> None:
    bomb = gzip.compress(b" " * 200_000_000)
    assert len(bomb) > LIMIT
    problem(small.predict(bomb, content_encoding="gzip"), 413, "body_too_large")
    bomb = gzip.compress(b" " * 20_000_000)
    assert len(bomb) < LIMIT
    problem(small.predict(bomb, content_encoding="gzip"), 413, "body_too_large")


class Inflating:
    """zlib's own machine; `made` is how much each thread had it make."""

    def __init__(self, made: Counter[int], *arguments: Any) -> None:
        self._made, self._machine = made, zlib.decompressobj(*arguments)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._machine, name)

    def decompress(self, data: bytes, most: int = 0) -> bytes:
        piece = self._machine.decompress(data, most)
        self._made[threading.get_ident()] += len(piece)
        return piece


def test_the_event_loop_decompresses_little(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    made = Counter[int]()
    machine = SimpleNamespace(decompressobj=partial(Inflating, made), error=zlib.error)
    monkeypatch.setattr(bodies, "zlib", machine)
    loop_thread = client.portal.call(threading.get_ident)
    sizes = (len(BODY), 100_000, 10_000_000)
    for size in sizes:
        plain = BODY.ljust(size)
        found = client.predict(gzip.compress(plain), content_encoding="gzip")
        assert predictions(found) == predictions(client.predict(BODY))
    assert sum(made.values()) == sum(sizes)
    assert made[loop_thread] <= len(BODY) + 2 * bodies.INLINE_BYTES


@pytest.mark.parametrize("dtype", ["<f4", ">f4", "<f8", ">f8", "<f2", "i1", "u1", "<i8", ">i4", "<u8"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_an_npy_body_is_an_array(client: Client, dtype: str, order: Any) -> None:
    array = np.array([[1, 2, 3, 4], [0, 1, 0, 5]], dtype, order=order)
    found = client.request("POST", "/predict", content=npy(array), headers=NPY)
    assert predictions(found) == predictions(client.predict({"inputs": array.astype(float).tolist()}))
    one = client.request("POST", "/predict", content=npy(array[0]), headers=NPY)
    assert predictions(one) == predictions(client.predict({"inputs": array[0].astype(float).tolist()}))


def lying_header(shape: str, data: bytes = b"", dtype: str = "<f4") -> bytes:
    text = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}}}".ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode() + data


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x93NUMPY",
        b"no array",
        npy(np.zeros((2, 4), np.float32))[:-1],
        npy(np.zeros((2, 4), np.float32)) + b"x",
        npy(np.zeros((2, 5), np.float32)),
        npy(np.zeros((2, 4), np.complex64)),
        npy(np.zeros((2, 4), bool)),
        npy(np.array([["1", "2", "3", "4"]])),
        npy(np.array([[{"a": 1}, None, 1, 2]], object)),
        npy(np.array([[np.nan, 0, 0, 0]])),
        npy(np.array([[1e300, 0, 0, 0]])),
        npy(np.zeros((0, 4), np.float32)),
        lying_header("(1099511627776, 4)"),
        lying_header("(-1, 4)"),
        lying_header("(2, -4)", b"\0" * 32),
        lying_header("(True, 4)", b"\0" * 16),
        lying_header("4", b"\0" * 16),
        lying_header(f"(0, {2**62})"),
        lying_header(f"({2**62}, 0)"),
        lying_header(f"(0, {10**100})"),
        lying_header(f"({', '.join(['1'] * 65)})", b"\0" * 4),
        lying_header(f"(1, {'0, ' * 70})"),
        lying_header("(1, 4)", b"\0" * 16, "|O"),
        lying_header("(1, 4)", b"\0" * 64, "<f16"),
        lying_header("(1, __import__('os').getpid())"),
        b"\x93NUMPY\x03\x00\xff\xff\xff\xff",
    ],
)
def test_a_bad_npy_body_is_a_clear_problem(client: Client, data: bytes) -> None:
    found = problem(client.request("POST", "/predict", content=data, headers=NPY), 422, "input")
    assert found.field
    assert found.field.startswith("body")


@settings(deadline=None, max_examples=200)
@given(st.binary(max_size=300), st.integers(0, 160), st.booleans())
def test_no_npy_body_is_a_bug(client: Client, noise: bytes, place: int, header: bool) -> None:
    good = npy(np.zeros((2, 4), np.float32))
    data = good[:place] + noise + good[place + len(noise) :] if header else b"\x93NUMPY" + noise
    assert client.request("POST", "/predict", content=data, headers=NPY).status_code in (200, 413, 422)


def test_too_many_rows_of_an_npy_body_are_refused(small: Client) -> None:
    found = small.request("POST", "/predict", content=npy(np.zeros((17, 4), np.float32)), headers=NPY)
    problem(found, 413, "input_too_large")


def test_files_are_images(image_client: Client) -> None:
    data = image_file()
    one = image_client.request("POST", "/predict", files=[("files", ("a.png", data, "image/png"))])
    assert len(predictions(one)) == 1
    several = image_client.request("POST", "/predict", files=[("files", (f"{i}.png", data)) for i in range(3)])
    assert predictions(several) == 3 * up_to_rounding(one.text)["predictions"]
    for kind in ("png", "jpeg", "webp"):
        raw = image_client.request(
            "POST", "/predict", content=image_file(kind.upper()), headers={"content-type": f"image/{kind}"}
        )
        assert len(predictions(raw)) == 1
    raw = image_client.request("POST", "/predict", content=data, headers={"content-type": "image/png"})
    assert predictions(raw) == predictions(one)


def form(*parts: tuple[str, bytes]) -> bytes:
    return b"".join(b"--x\r\n" + head.encode() + b"\r\n\r\n" + data + b"\r\n" for head, data in parts) + b"--x--\r\n"


A_FORM = {"content-type": "multipart/form-data; boundary=x"}
FILE = 'Content-Disposition: form-data; name="files"; filename="a.png"'


@pytest.mark.parametrize(
    ("body", "kind", "status", "code"),
    [
        (b"", "multipart/form-data; boundary=x", 422, "field"),
        (form(), "multipart/form-data; boundary=x", 422, "field"),
        (form((FILE, b"")), "multipart/form-data; boundary=x", 422, "input"),
        (form((FILE, b"no image")), "multipart/form-data; boundary=x", 422, "input"),
        (form((FILE.replace("files", "images"), b"")), "multipart/form-data; boundary=x", 422, "field"),
        (
            form(('Content-Disposition: form-data; name="files"', b"text")),
            "multipart/form-data; boundary=x",
            422,
            "field",
        ),
        (form(("Content-Disposition: form-data", b"text")), "multipart/form-data; boundary=x", 400, "multipart"),
        (b"--x\r\n\r\n--y", "multipart/form-data; boundary=x", 400, "multipart"),
        (b"--x\r\nbroken", "multipart/form-data", 400, "multipart"),
    ],
)
def test_a_bad_form_is_a_clear_problem(image_client: Client, body: bytes, kind: str, status: int, code: str) -> None:
    problem(image_client.request("POST", "/predict", content=body, headers={"content-type": kind}), status, code)


def test_a_text_in_the_place_of_a_file_is_told(image_client: Client) -> None:
    """As `curl -F files=digit.png` sends it."""
    body = form(('Content-Disposition: form-data; name="files"', b"digit.png"))
    told = image_client.request("POST", "/predict", content=body, headers=A_FORM)
    assert "'files' without a file name (curl: -F files=@FILE)" in told.json()["detail"]


def test_the_name_of_a_file_may_be_of_any_encoding(image_client: Client) -> None:
    body = form((FILE, image_file())).replace(b"a.png", b"z\xfcrich.png")
    assert image_client.request("POST", "/predict", content=body, headers=A_FORM).status_code == 200


def test_too_many_files_are_refused(images: Synthetic) -> None:
    with serving(Predictor.load(images.path), Settings(max_rows=2)) as client:
        files = [("files", ("a.png", image_file())) for _ in range(5)]
        problem(client.request("POST", "/predict", files=files), 413, "input_too_large")


def test_images_for_a_model_of_features_are_refused(client: Client) -> None:
    found = client.request("POST", "/predict", content=image_file(), headers={"content-type": "image/png"})
    assert "takes arrays" in problem(found, 422, "input").detail


@settings(deadline=None, max_examples=150)
@given(st.binary(max_size=200), st.sampled_from(["multipart/form-data; boundary=x", "multipart/form-data"]))
def test_no_form_is_a_bug(image_client: Client, noise: bytes, kind: str) -> None:
    for body in (noise, b"--x\r\n" + noise, form((FILE, noise))):
        found = image_client.request("POST", "/predict", content=body, headers={"content-type": kind})
        assert found.status_code in (400, 413, 422)


def test_a_picture_of_any_mode_is_taken(image_client: Client) -> None:
    from PIL import Image

    for mode in ("1", "L", "LA", "P", "RGB", "RGBA", "CMYK", "I;16"):
        data = encoded(Image.new(mode, (5, 4), 1), "JPEG" if mode == "CMYK" else "PNG")
        kind = "image/jpeg" if mode == "CMYK" else "image/png"
        found = image_client.request("POST", "/predict", content=data, headers={"content-type": kind})
        assert len(predictions(found)) == 1, mode
