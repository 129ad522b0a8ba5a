"""A model with several named inputs: requests in JSON and by the Open Inference Protocol, and what is refused."""

import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from demur.service.bundle import InputPart, InputSpec
from demur.service.client.encoding import encode_inputs
from demur.service.format.rules import ManifestError
from demur.service.inference.parts import packed
from demur.service.inference.predictor import Predictor
from tests.support.bundles import Synthetic, write_linear
from tests.support.client import Client, problem, serving
from tests.support.v2 import outputs, post

PARTS = (InputPart("pixels", (2, 2)), InputPart("token", (), "int64"), InputPart("known", (2,), "bool"))
SPEC = InputSpec(shape=(7,), parts=PARTS)
RNG = np.random.default_rng(4)
NAMED: dict[str, Any] = {
    "pixels": RNG.normal(size=(5, 2, 2)).astype(np.float32),
    "token": RNG.integers(0, 9, 5),
    "known": RNG.uniform(size=(5, 2)) < 0.5,
}
PACKED = np.concatenate([NAMED["pixels"].reshape(5, 4), NAMED["token"][:, None], NAMED["known"]], axis=1)
Json = dict[str, Any]


@pytest.fixture(scope="module")
def synthetic(tmp_path_factory: pytest.TempPathFactory) -> Synthetic:
    return write_linear(tmp_path_factory.mktemp("parts") / "bundle", outputs=3, spec=SPEC)


@pytest.fixture(scope="module")
def client(synthetic: Synthetic) -> Iterator[Client]:
    with serving(Predictor.load(synthetic.path)) as found:
        yield found


def listed(named: Json) -> Json:
    return {name: np.asarray(values).tolist() for name, values in named.items()}


def test_they_are_packed_in_the_order_of_the_manifest(synthetic: Synthetic) -> None:
    np.testing.assert_array_equal(packed(NAMED, PARTS, "inputs"), PACKED.astype(np.float32))
    found = Predictor.load(synthetic.path).predict(dict(reversed(NAMED.items())))
    np.testing.assert_allclose(found.mean, synthetic.mean(PACKED), rtol=1e-4, atol=1e-5)


def test_a_tuple_has_them_in_the_order_of_the_manifest(synthetic: Synthetic) -> None:
    predictor = Predictor.load(synthetic.path)
    found = predictor.predict(tuple(NAMED[part.name] for part in PARTS))
    np.testing.assert_array_equal(found.mean, predictor.predict(NAMED).mean)
    with pytest.raises(ValueError, match="found 2 arrays, expected those of 'pixels', 'token', 'known', in this order"):
        predictor.predict((NAMED["pixels"], NAMED["token"]))


def test_one_input_may_have_a_name_too(tmp_path: Path) -> None:
    spec = InputSpec(shape=(4,), parts=PARTS[:1])
    alone = write_linear(tmp_path / "bundle", outputs=3, spec=spec)
    pixels = NAMED["pixels"]
    found = Predictor.load(alone.path).predict({"pixels": pixels})
    np.testing.assert_allclose(found.mean, alone.mean(pixels.reshape(5, 4)), rtol=1e-4, atol=1e-5)
    with serving(Predictor.load(alone.path)) as client:
        assert client.predict({"inputs": {"pixels": pixels.tolist()}}).status_code == 200


def test_a_request_has_them_by_name(synthetic: Synthetic, client: Client) -> None:
    expected = synthetic.mean(PACKED)
    for named in (NAMED, {**NAMED, "known": NAMED["known"].astype(int)}):
        response = client.predict({"inputs": listed(named)}, "?detail=full")
        assert response.status_code == 200, response.text
        found = [list(one["logit_mean"].values()) for one in response.json()["predictions"]]
        np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-5)
    one = {name: values[0] for name, values in NAMED.items()}
    (found,) = client.predict({"inputs": {**listed(one), "token": [int(one["token"])]}}, "?fields=logit_mean").json()[
        "predictions"
    ]
    np.testing.assert_allclose(list(found["logit_mean"].values()), expected[0], rtol=1e-3, atol=1e-5)


def test_white_space_around_names_does_not_count(synthetic: Synthetic, client: Client) -> None:
    listed = {name: np.asarray(values).tolist() for name, values in NAMED.items()}
    odd = {f" {name} ": values for name, values in listed.items()}
    answers = [client.predict({"inputs": named}) for named in (listed, odd)]
    assert answers[0].json()["predictions"] == answers[1].json()["predictions"]
    predictor = Predictor.load(synthetic.path)
    plain, spaced = (predictor.predict({k: np.array(v) for k, v in named.items()}).mean for named in (listed, odd))
    np.testing.assert_array_equal(plain, spaced)
    twice = {**odd, **{f"{name}  ": values for name, values in listed.items()}}
    problem(client.predict({"inputs": twice}), 422, "input")


def test_the_client_sends_a_mapping_of_arrays() -> None:
    content, kind = encode_inputs(NAMED)
    assert kind == "application/json"
    assert json.loads(content) == {"inputs": listed(NAMED)}


REFUSED: dict[str, tuple[Any, str, str]] = {
    "missing": (
        {k: v for k, v in NAMED.items() if k != "token"},
        "inputs",
        "found no 'token', expected 'pixels', 'token',",
    ),
    "unknown": ({**NAMED, "pixel": [1]}, "inputs", "found 'pixel' (did you mean 'pixels'?), expected"),
    "lengths": ({**NAMED, "token": [1, 2]}, "inputs", "examples, expected as many of each input"),
    "shape": (
        {**NAMED, "pixels": np.ones((5, 3))},
        "inputs.pixels",
        "found shape (5, 3), expected shape (batch, 2",
    ),
    "text": ({**NAMED, "token": ["a"] * 5}, "inputs.token[0]", "found 'a', expected a whole number"),
    "share": ({**NAMED, "token": [0.5] * 5}, "inputs.token[0]", "found 0.5, expected a whole number"),
    "large": ({**NAMED, "token": [2**25] * 5}, "inputs['token']", "whole ones up to 16777216"),
    "no list": ({**NAMED, "token": 3}, "inputs.token", "found 3, expected a list of numbers"),
}


@pytest.mark.parametrize(("named", "field", "words"), REFUSED.values(), ids=REFUSED)
def test_requests_that_are_refused(client: Client, named: Json, field: str, words: str) -> None:
    found = problem(client.predict({"inputs": listed(named)}), 422, "input")
    assert found.field == field
    assert words in found.detail


def test_a_list_is_refused(client: Client) -> None:
    found = problem(client.predict({"inputs": PACKED.tolist()}), 422, "input")
    assert "found a list, expected an object with the inputs 'pixels', 'token', 'known'" in found.detail


def test_names_are_refused_where_there_is_one_input(classification: Synthetic) -> None:
    with serving(Predictor.load(classification.path)) as client:
        found = problem(client.predict({"inputs": {"x": [[1, 2, 3, 4]]}}), 422, "input")
    assert "found an object, expected a list: the model has one input" in found.detail


def entry(name: str, datatype: str, data: Any = None) -> Json:
    values = NAMED[name]
    given = {"data": np.ravel(values).tolist()} if data is None else {"parameters": {"binary_data_size": data}}
    return {"name": name, "datatype": datatype, "shape": list(np.shape(values)), **given}


def test_the_open_inference_protocol(synthetic: Synthetic, client: Client) -> None:
    path, expected = "/v2/models/synthetic", synthetic.mean(PACKED)
    assert [one["name"] for one in client.get(path).json()["inputs"]] == ["pixels", "token", "known"]
    assert [one["datatype"] for one in client.get(path).json()["inputs"]] == ["FP32", "INT64", "BOOL"]
    assert [one["shape"] for one in client.get(path).json()["inputs"]] == [[-1, 2, 2], [-1], [-1, 2]]
    entries = [entry("token", "INT32"), entry("known", "BOOL"), entry("pixels", "FP32")]
    found = outputs(post(client, {"inputs": entries, "outputs": [{"name": "mean"}]}, f"{path}/infer"))
    np.testing.assert_allclose(np.reshape(found["mean"]["data"], (5, 3)), expected, rtol=1e-4, atol=1e-5)

    tensors = {
        "pixels": NAMED["pixels"].tobytes(),
        "token": struct.pack("<5q", *NAMED["token"].tolist()),
        "known": NAMED["known"].tobytes(),
    }
    kinds = {"pixels": "FP32", "token": "INT64", "known": "BOOL"}
    head = json.dumps(
        {
            "inputs": [entry(name, kinds[name], len(data)) for name, data in tensors.items()],
            "outputs": [{"name": "mean"}],
        }
    ).encode()
    body = head + b"".join(tensors.values())
    response = post(client, body, f"{path}/infer", inference_header_content_length=str(len(head)))
    np.testing.assert_allclose(np.reshape(outputs(response)["mean"]["data"], (5, 3)), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("entries", "words"),
    [
        ([entry("pixels", "FP32")], "found no 'token', expected"),
        ([entry("pixels", "FP32"), {**entry("token", "INT64"), "name": "tokens"}], "(did you mean 'token'?)"),
        ([entry("pixels", "FP32"), entry("pixels", "FP32")], "once more, expected each input once"),
        ([], "found an empty list"),
    ],
)
def test_protocol_requests_that_are_refused(client: Client, entries: list[Json], words: str) -> None:
    response = post(client, {"inputs": entries}, "/v2/models/synthetic/infer")
    assert response.status_code in (400, 422)
    assert words in response.json()["error"]


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"shape": (8,), "parts": PARTS}, "expected float32 and the size of all parts, 7"),
        ({"shape": (4,), "parts": ()}, "expected at least one, all different"),
        ({"shape": (8,), "parts": (PARTS[0], PARTS[0])}, "expected at least one, all different"),
        (
            {"shape": (7,), "parts": PARTS, "feature_names": tuple("abcdefg")},
            "found an image or feature names",
        ),
    ],
)
def test_specs_that_are_refused(spec: Json, message: str) -> None:
    with pytest.raises(ManifestError, match=message):
        InputSpec(**spec)


def test_what_the_predictor_refuses(synthetic: Synthetic, classification: Synthetic, tmp_path: Path) -> None:
    predictor = Predictor.load(synthetic.path)
    with pytest.raises(ValueError, match="inputs: found no 'known', expected 'pixels', 'token', 'known'"):
        predictor.predict({name: NAMED[name] for name in ("pixels", "token")})
    with pytest.raises(ValueError, match=r"inputs\['known'\]: found a data frame, expected an array"):
        predictor.predict({**NAMED, "known": pd.DataFrame(NAMED["known"])})
    with pytest.raises(ValueError, match=r"inputs\['token'\]: found other numbers than whole ones"):
        predictor.predict({**NAMED, "token": NAMED["token"] + 0.5})
    with pytest.raises(ValueError, match="inputs: found 'x', expected one array; of columns, a data frame"):
        Predictor.load(classification.path).predict({"x": np.ones((2, 4))})
