"""What the clients send, and the arguments they refuse before anything is sent."""

import functools
import io
import json
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pandas as pd
import pytest

from demur.service.client import AsyncClient, Client
from tests.support.fake_service import URL, World, ok

KEY = "demur_secret"


def sent(
    kind: str, method: str, *arguments: Any, reply: Any = None, options: Any = None, **named: Any
) -> httpx.Request:
    world = World(kind, [ok()])
    world.ask(method, *arguments, options=options, **named)
    return world.requests[0]


def test_lists_are_sent_as_json(kind: str) -> None:
    request = sent(kind, "predict", [(1, 2.5), [float("nan"), np.float32(3)], np.arange(2)])
    assert (request.method, str(request.url)) == ("POST", f"{URL}/predict")
    assert request.headers["content-type"] == "application/json"
    assert "authorization" not in request.headers
    assert request.content == b'{"inputs": [[1, 2.5], [NaN, 3.0], [0, 1]]}'


@pytest.mark.parametrize(
    "texts", [["a", "b"], ("a", "b"), np.array(["a", "b"]), np.array(["a", "b"], object), pd.Series(["a", "b"])]
)
def test_texts_are_sent_as_such(kind: str, texts: Any) -> None:
    assert sent(kind, "predict", texts).content == b'{"texts": ["a", "b"]}'


def test_masked_entries_are_refused(kind: str) -> None:
    masked = np.ma.masked_invalid([[1.0, np.nan]])
    with pytest.raises(ValueError, match="inputs: found masked entries, expected numbers; fill what is missing"):
        sent(kind, "predict", masked)
    assert sent(kind, "predict", np.ma.masked_invalid([[1.0, 2.0]])).headers["content-type"] == "application/x-npy"


def test_one_text_is_sent_as_one(kind: str) -> None:
    assert sent(kind, "predict", "a").content == b'{"texts": ["a"]}'


def test_other_arrays_are_sent_as_json(kind: str) -> None:
    class Tensor:
        def tolist(self) -> list[float]:
            return [1.0, 2.0]

    assert json.loads(sent(kind, "predict", Tensor()).content) == {"inputs": [1.0, 2.0]}


@pytest.mark.parametrize("dtype", ["float32", ">f8", "int64", "uint8"])
def test_arrays_are_sent_as_they_are(kind: str, dtype: str) -> None:
    array = np.asfortranarray(np.arange(6).reshape(2, 3).astype(dtype))
    request = sent(kind, "predict", array)
    assert request.headers["content-type"] == "application/x-npy"
    found = np.load(io.BytesIO(request.content))
    np.testing.assert_array_equal(found, array)
    assert found.dtype == array.dtype


def test_the_rows_of_a_frame_are_sent_as_objects(kind: str) -> None:
    frame = pd.DataFrame({"a": [1, 2], "b": [0.5, np.nan], "when": pd.to_datetime(["2024-01-01", "2024-01-02"])})
    content = sent(kind, "predict", frame).content
    assert content.startswith(b'{"inputs": [{"a": 1, "b": 0.5, "when": "2024-01-01 00:00:00"}, {"a": 2, "b": NaN, ')
    without_names = sent(kind, "predict", pd.DataFrame([[1, 2], [3, 4]]))
    assert json.loads(without_names.content) == {"inputs": [[1, 2], [3, 4]]}
    truths = pd.DataFrame({"a": [True, False]})
    assert json.loads(sent(kind, "predict", truths).content) == {"inputs": [{"a": 1}, {"a": 0}]}
    for inputs in (frame.iloc[0], [frame.iloc[0]], {"x": frame}):
        with pytest.raises(TypeError, match=r"of named values, expected a data frame, such as frame\.iloc"):
            World(kind, []).ask("predict", inputs)
    with pytest.raises(ValueError, match=r"found columns called \[1, 0\], expected text, or 0, 1"):
        World(kind, []).ask("predict", pd.DataFrame([[1, 2]], columns=[1, 0]))
    with pytest.raises(ValueError, match="found several columns of one name"):
        World(kind, []).ask("predict", pd.concat([frame, frame], axis=1))


@pytest.mark.parametrize(
    "inputs", [object(), {1, 2}, [object()], (i for i in range(2)), np.array([object()]), {(1, 2): 3}]
)
def test_what_is_no_array_is_not_sent(kind: str, inputs: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        World(kind, []).ask("predict", inputs)


@pytest.mark.parametrize(
    ("method", "names", "path"),
    [
        ("predict", {}, "/predict"),
        ("predict", {"model": "digits"}, "/models/digits/predict"),
        (
            "predict",
            {"model": "a b/ü%?#", "version": "1.0+x"},
            "/models/a%20b%2F%C3%BC%25%3F%23/versions/1.0%2Bx/predict",
        ),
        ("card", {}, "/model"),
        ("card", {"model": "digits"}, "/models/digits"),
        ("card", {"model": "digits", "version": "2"}, "/models/digits/versions/2"),
    ],
)
@pytest.mark.parametrize("prefix", ["", "/behind/a/proxy"])
def test_paths(method: str, names: dict[str, str], path: str, prefix: str) -> None:
    seen = []

    def reply(request: httpx.Request) -> httpx.Response:
        seen.append(request.url.raw_path.decode())
        return ok()

    with Client(URL + prefix, transport=httpx.MockTransport(reply)) as client:
        ask: Any = functools.partial(client.predict, [1.0]) if method == "predict" else client.card
        ask(**names)
    assert seen == [prefix + path]


@pytest.mark.parametrize("names", [{"version": "1"}, {"model": ""}, {"model": ".."}, {"model": "m", "version": "."}])
@pytest.mark.parametrize("method", ["predict", "card"])
def test_names_that_lead_elsewhere_are_not_sent(kind: str, method: str, names: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="expected"):
        World(kind, []).ask(method, **names)


def test_files_are_sent_as_a_form(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "private name.png"
    path.write_bytes(b"one")
    files = [path, str(path), b"two", bytearray(b"three"), memoryview(b"four"), io.BytesIO(b"five")]
    request = sent(kind, "predict_images", files, model="m")
    assert request.url.path == "/models/m/predict"
    assert request.headers["content-type"].startswith("multipart/form-data; boundary=")
    assert b"private" not in request.content
    assert request.content.count(b'name="files"; filename="image-') == 6
    at = [request.content.index(b"\r\n\r\n" + data + b"\r\n") for data in (b"one", b"two", b"three", b"four", b"five")]
    assert at == sorted(at)


def test_one_file_stands_for_a_list_of_it(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"data\nmore")
    for file in (path, str(path), b"data\nmore", io.BytesIO(b"data\nmore")):
        request = sent(kind, "predict_images", file)
        assert request.content.count(b'name="files"') == 1
        assert b"\r\n\r\ndata\nmore\r\n" in request.content


@pytest.mark.parametrize(
    ("files", "error"),
    [
        ([], ValueError),
        ([1], TypeError),
        (1, TypeError),
        (io.StringIO("text"), TypeError),
        (["/no/such/file"], OSError),
    ],
)
def test_what_is_no_file_is_not_sent(kind: str, files: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        World(kind, []).ask("predict_images", files)


def test_the_key_is_sent(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEMUR_API_KEY", "demur_of_the_environment")
    assert sent(kind, "predict").headers["authorization"] == "Bearer demur_of_the_environment"
    assert sent(kind, "predict", options={"api_key": KEY}).headers["authorization"] == f"Bearer {KEY}"
    assert "authorization" not in sent(kind, "predict", options={"api_key": ""}).headers


@pytest.mark.parametrize("client", [Client, AsyncClient])
@pytest.mark.parametrize("key", [KEY + "\n", "a b", "ключ", "\0"])
def test_a_key_that_is_none_is_not_shown(client: Any, key: str) -> None:
    with pytest.raises(ValueError, match="api_key") as caught:
        client(URL, api_key=key)
    assert KEY not in str(caught.value)


@pytest.mark.parametrize("client", [Client, AsyncClient])
@pytest.mark.parametrize(
    "changes",
    [
        {"base_url": ""},
        {"base_url": "127.0.0.1:8000"},
        {"base_url": "ftp://host"},
        {"base_url": "http://"},
        {"base_url": "http://host:port"},
        {"base_url": "http://host/?query"},
        {"base_url": "http://host:0"},
        {"base_url": "http://host:-1"},
        {"base_url": "http://127.0.0.1:65536"},
        {"base_url": "https://127.0.0.1:99999", "api_key": KEY},
        {"base_url": "http://name:word@host", "api_key": KEY},
        {"timeout": 0},
        {"timeout": float("nan")},
        {"timeout": float("inf")},
        {"retries": -1},
    ],
)
def test_arguments_that_cannot_work(client: Any, changes: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"^(base_url|timeout|retries): "):
        client(**{"base_url": URL, **changes})


@pytest.mark.parametrize("timeout", [0, -1, float("nan"), float("inf")])
def test_a_timeout_that_is_none_is_not_sent(kind: str, timeout: float) -> None:
    with pytest.raises(ValueError, match="timeout"):
        World(kind, []).ask(timeout=timeout)


@pytest.mark.parametrize(("timeout", "header"), [(2, "2"), (0.25, "0.25"), (1e-9, "0.001")])
def test_the_service_is_told_the_time(kind: str, timeout: float, header: str) -> None:
    assert sent(kind, "predict", timeout=timeout).headers["x-request-timeout"] == header
