"""Bad requests: each is answered with a problem that names what was wrong, never with a 500."""

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from demur.service.bundle import ImagePreprocessing, InputSpec
from demur.service.codec.decoding import NPY
from demur.service.inference.predictor import Predictor
from demur.service.settings import Settings
from tests.support.bundles import Synthetic, write_linear
from tests.support.client import PROBLEM_TYPE, Client, encoded, problem, serving
from tests.support.requests import BAD_IMAGE_REQUESTS, BAD_REQUESTS, GOOD, JSON, Bad, bad_image, image_file


def check(client: Client, bad: Bad) -> None:
    response = client.request("POST", "/predict", content=bad.content, headers=bad.headers)
    found = problem(response, bad.status, bad.code)
    if bad.where is not None:
        assert found.field is not None
        assert found.field.startswith(bad.where)
        assert len(found.field) <= 100
    if bad.code in ("input", "media_type", "content_encoding", "input_too_large"):
        assert found.expected
        assert found.found is not None
        assert found.found


@pytest.mark.parametrize("bad", BAD_REQUESTS, ids=lambda bad: bad.name)
def test_a_bad_request_is_a_clear_problem(client: Client, bad: Bad) -> None:
    check(client, bad)


@pytest.mark.parametrize("bad", BAD_IMAGE_REQUESTS, ids=lambda bad: bad.name)
def test_a_bad_image_is_a_clear_problem(image_client: Client, bad: Bad) -> None:
    check(image_client, bad)


def test_an_image_of_another_size_is_refused_where_the_bundle_does_not_resize(shelf: Path) -> None:
    spec = InputSpec(shape=(1, 4, 5), image=ImagePreprocessing(resize=False))
    synthetic = write_linear(shelf / "fixed size", outputs=3, spec=spec)
    with serving(Predictor.load(synthetic.path)) as client:
        assert client.predict({"images": [bad_image("", image_file()).body["images"][0]]}).status_code == 200
        bad = bad_image("another size", encoded(Image.new("L", (6, 6))))
        check(client, bad)
        found = problem(client.predict(bad.body), 422, "input")
        assert (found.found, found.expected) == ("6 x 6 pixels", "5 x 4 pixels (no resizing)")


@pytest.mark.parametrize("tokens_sent", [[0, 5], [0, -6], [0, 2**40], [2**63 - 1, 0]], ids=str)
def test_a_token_beyond_the_vocabulary_is_a_bad_request(token_client: Client, tokens_sent: list[int]) -> None:
    """The graph itself refuses it. That is the client's mistake, not the service's."""
    response = token_client.predict({"inputs": [[0, 1], tokens_sent]})
    assert response.status_code == 422, response.text
    assert response.headers["content-type"] == PROBLEM_TYPE
    bad = next(place for place, token in enumerate(tokens_sent) if not 0 <= token < 5)
    told = f"looks up the value {tokens_sent[bad]} at [1][{bad}], expected one from 0 to 4"
    assert told in response.json()["detail"]
    assert token_client.predict({"inputs": [[0, 1]]}).status_code == 200


@pytest.mark.parametrize("rows", [100, 300])
def test_the_place_of_a_bad_token_is_that_in_the_request(token_client: Client, rows: int) -> None:
    """However the request is cut into batches."""
    inputs = [[0, 1] for _ in range(rows)]
    inputs[rows - 10][1] = 7
    response = token_client.predict({"inputs": inputs})
    assert f"looks up the value 7 at [{rows - 10}][1], expected one from 0 to 4" in response.json()["detail"]


def test_an_image_that_gives_no_finite_output_is_named_as_the_image(tmp_path: Path) -> None:
    spec = InputSpec(shape=(1, 4, 5), image=ImagePreprocessing(scale=1e15, std=(1e-10,)))
    synthetic = write_linear(tmp_path / "steep", outputs=3, spec=spec)
    with serving(Predictor.load(synthetic.path)) as client:
        images = bad_image("steep", image_file()).body["images"]
        found = problem(client.predict({"images": images}), 422, "non_finite_output")
        assert found.field == "images[0]"


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=12,
)
requests = json_values | st.fixed_dictionaries({}, optional={"inputs": json_values, "images": json_values})


@settings(max_examples=60)
@given(requests)
def test_any_json_is_answered_or_refused(client: Client, image_client: Client, body: Any) -> None:
    for one in (client, image_client):
        response = one.predict(body)
        assert response.status_code in (200, 400, 413, 422), response.text


@settings(max_examples=60)
@given(st.binary(max_size=200))
def test_any_bytes_are_answered_or_refused(client: Client, body: bytes) -> None:
    assert client.predict(body).status_code in (200, 400, 413, 422)


@pytest.fixture(scope="module")
def limited(images: Synthetic) -> Iterator[Client]:
    limits = Settings(max_body_bytes=2000, max_rows=2, max_pixels=30)
    with serving(Predictor.load(images.path), limits) as started:
        yield started


class TestLimits:
    """The operator's limits, just kept and just broken."""

    @pytest.mark.parametrize(("size", "status"), [(2000, 200), (2001, 413), (32_000, 413), (200_000, 413)])
    def test_body(self, limited: Client, size: int, status: int) -> None:
        body = b'{"inputs": [' + str([[[0.5] * 5] * 4]).encode() + b"]}"
        response = limited.predict(body + b" " * (size - len(body)))
        assert response.status_code == status
        if status == 413:
            assert problem(response, 413, "body_too_large").expected == "at most 2000 bytes"

    def test_rows(self, limited: Client) -> None:
        example = [[[0.0] * 5] * 4]
        assert limited.predict({"inputs": [example] * 2}).status_code == 200
        found = problem(limited.predict({"inputs": [example] * 3}), 413, "input_too_large")
        assert (found.field, found.found, found.expected) == ("inputs", "3 examples", "at most 2 in one request")

    def test_pixels(self, limited: Client) -> None:
        def send(width: int) -> Any:
            return limited.predict(bad_image("", encoded(Image.new("L", (width, 5)))).body)

        assert send(6).status_code == 200
        found = problem(send(7), 413, "input_too_large")
        assert (found.field, found.found, found.expected) == ("images[1]", "7 x 5 pixels", "at most 30 pixels")


@pytest.mark.parametrize("entry", ["[]", "1", "{}"])
def test_a_flood_of_entries_is_refused_before_it_is_parsed(client: Client, entry: str) -> None:
    body = b'{"inputs": [' + b",".join([entry.encode()] * 300_000) + b"]}"
    problem(client.predict(body), 413, "input_too_large")


def test_a_flood_of_fields_is_refused_before_it_is_parsed(client: Client) -> None:
    fields = ",".join(f'"k{i}":1' for i in range(100_000))
    found = problem(client.predict(f'{{"inputs": [0, 0, 0, 0], {fields}}}'.encode()), 413, "input_too_large")
    assert ".npy" in (found.expected or "")


def test_a_shape_of_huge_numbers_is_refused(client: Client) -> None:
    """NumPy's reader takes them in hexadecimal, and Python refuses to write them in decimal."""
    header = b"{'descr': '<f4', 'fortran_order': False, 'shape': (0x" + b"f" * 5000 + b",)}"
    header += b" " * (-(len(header) + 11) % 64) + b"\n"
    body = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header
    found = problem(client.request("POST", "/predict", content=body, headers={"content-type": NPY}), 422, "input")
    assert "huge numbers" in (found.found or "")


@pytest.mark.parametrize("path", ["/nothing", "/predict/more", "/Predict", "/%ff", "/v1/../etc/passwd", "/a" * 500])
def test_unknown_paths(client: Client, path: str) -> None:
    found = problem(client.get(path), 404, "not_found")
    assert found.title == "Not Found"


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("GET", "/predict", "POST"),
        ("PUT", "/predict", "POST"),
        ("DELETE", "/predict", "POST"),
        ("BREW", "/predict", "POST"),
        ("POST", "/health/live", "GET, HEAD"),
        ("POST", "/metrics", "GET, HEAD"),
        ("DELETE", "/model", "GET, HEAD"),
    ],
)
def test_other_methods(client: Client, method: str, path: str, allowed: str) -> None:
    response = client.request(method, path)
    problem(response, 405, "method_not_allowed")
    assert response.headers["allow"] == allowed


def test_the_media_type_may_be_missing_or_have_parameters(client: Client) -> None:
    body = str({"inputs": GOOD}).replace("'", '"').encode()
    for headers in ({}, JSON, {"content-type": "Application/JSON; charset=utf-8"}, {"content-encoding": "identity"}):
        assert client.request("POST", "/predict", content=body, headers=headers).status_code == 200


def test_a_bug_is_a_problem_without_details(classification: Synthetic) -> None:
    class Broken(Predictor):
        def predict(self, inputs: Any) -> Any:
            raise RuntimeError("secret details")

    with serving(Broken.load(classification.path)) as client:
        response = client.predict({"inputs": GOOD})
        assert "secret" not in problem(response, 500, "internal").detail
        assert response.headers["x-content-type-options"] == "nosniff"
        assert client.get("/health/live").status_code == 200
