"""A model that takes texts: the bundle's tokenizer, requests in JSON and by the Open Inference Protocol."""

import dataclasses
import json
import shutil
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from demur.service.bundle import (
    TOKENIZER,
    BundleError,
    InputPart,
    InputSpec,
    InputText,
    ManifestError,
    read_bundle,
    reseal_manifest,
)
from demur.service.codec.plain_texts import CHARACTERS_OF_A_TOKEN
from demur.service.inference.predictor import Predictor
from demur.service.inference.texts import MAX_CHARACTERS
from demur.service.settings import Settings
from tests.support.bundles import TEXT_SPEC, TOKENS, Synthetic, rewrite, tokenizer_json, write_linear
from tests.support.client import Client, problem, serving
from tests.support.v2 import outputs, post

TEXTS = ["The film was good", "the film", "bad"]
PACKED = np.array(
    [[1, 1, 1, 1, 2, 3, 4, 5], [1, 1, 1, 0, 2, 3, 4, 0], [1, 1, 0, 0, 2, 7, 0, 0]],
    np.float32,
)
INFER = "/v2/models/synthetic/infer"


class Frame:
    """What makes a data frame one here."""

    columns = ("text",)

    def to_numpy(self) -> np.ndarray:
        return np.array([["good"]])


@pytest.fixture(scope="module")
def synthetic(tmp_path_factory: pytest.TempPathFactory) -> Synthetic:
    path = tmp_path_factory.mktemp("texts") / "bundle"
    return write_linear(path, outputs=3, spec=TEXT_SPEC, tokenizer=tokenizer_json())


@pytest.fixture(scope="module")
def client(synthetic: Synthetic) -> Iterator[Client]:
    with serving(Predictor.load(synthetic.path), Settings(max_rows=8)) as found:
        yield found


def test_the_predictor_reads_texts(synthetic: Synthetic) -> None:
    predictor, expected = Predictor.load(synthetic.path), synthetic.mean(PACKED)
    for texts in (TEXTS, tuple(TEXTS), np.array(TEXTS)):
        np.testing.assert_allclose(predictor.predict(texts).mean, expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(predictor.predict(TEXTS[0]).mean, expected[:1], rtol=1e-4, atol=1e-5)
    with pytest.raises(ValueError, match=r"found a data frame, expected texts, such as frame\['text'\]"):
        predictor.predict(Frame())
    with pytest.raises(ValueError, match=r"inputs\[1\]: found None, expected a text"):
        predictor.predict(["good", None])


def test_a_bundle_without_a_tokenizer_takes_numbers(classification: Synthetic) -> None:
    with pytest.raises(ValueError, match="found texts, expected numbers: the bundle has no tokenizer"):
        Predictor.load(classification.path).predict(TEXTS)
    with serving(Predictor.load(classification.path)) as client:
        found = problem(client.predict({"texts": TEXTS}), 422, "input")
    assert found.detail.startswith("texts: found texts, expected 'inputs': this model takes numbers")


def test_a_request_has_texts(synthetic: Synthetic, client: Client) -> None:
    response = client.predict({"texts": TEXTS}, "?detail=full")
    assert response.status_code == 200, response.text
    found = [list(one["logit_mean"].values()) for one in response.json()["predictions"]]
    np.testing.assert_allclose(found, synthetic.mean(PACKED), rtol=1e-3, atol=1e-5)
    assert response.json()["warnings"] == [
        "texts[0]: has more than the 4 tokens that the network takes; the rest is left out"
    ]


def test_it_takes_tokens_too(synthetic: Synthetic, client: Client) -> None:
    named = {"attention_mask": PACKED[:, :TOKENS].tolist(), "input_ids": PACKED[:, TOKENS:].tolist()}
    named = {name: [[int(value) for value in row] for row in rows] for name, rows in named.items()}
    predictions = [client.predict(body).json()["predictions"] for body in ({"inputs": named}, {"texts": TEXTS})]
    assert predictions[0] == predictions[1]


@pytest.mark.parametrize(
    ("body", "status", "code", "words"),
    [
        ({"texts": []}, 422, "input", "texts: found an empty list, expected at least one text"),
        ({"texts": [1]}, 422, "field", "texts.0"),
        ({"texts": "good"}, 422, "field", "texts"),
        ({"texts": ["a"], "inputs": [1]}, 422, "field", "exactly one of the fields 'inputs', 'images' and 'texts'"),
        ({"texts": ["a"] * 9}, 413, "input_too_large", "texts: found 9 examples, expected at most 8"),
        ({"texts": ["a", "b" * (MAX_CHARACTERS + 1)]}, 413, "input_too_large", "texts[1]: found 100001 characters"),
        ({"images": ["a"]}, 422, "input", "this model takes arrays"),
        ({"inputs": ["good"]}, 422, "input", 'inputs: found texts, expected them in "texts"'),
    ],
)
def test_requests_that_are_refused(client: Client, body: Any, status: int, code: str, words: str) -> None:
    assert words in problem(client.predict(body), status, code).detail


def test_all_texts_together_are_bounded(client: Client) -> None:
    """One may be long, and all together may be many times what the network takes of them."""
    rest = CHARACTERS_OF_A_TOKEN * TOKENS
    assert client.predict({"texts": ["a" * MAX_CHARACTERS, "b" * 2 * rest]}).status_code == 200
    found = problem(client.predict({"texts": ["a" * MAX_CHARACTERS, "b" * (2 * rest + 1)]}), 413, "input_too_large")
    assert (
        f"found {MAX_CHARACTERS + 2 * rest + 1} characters, expected at most {MAX_CHARACTERS + 2 * rest} in all 2 "
        in (found.detail)
    )


def test_texts_hold_commas_brackets_and_colons(client: Client) -> None:
    assert client.predict({"texts": ["[12:00:00, 3] {a: b}, " * 2000]}).status_code == 200


def test_metadata_name_the_texts(client: Client) -> None:
    found = client.get("/v2/models/synthetic").json()["inputs"]
    assert found == [{"name": "inputs", "datatype": "BYTES", "shape": [-1]}]


@pytest.mark.parametrize("shape", [[3], [3, 1]])
def test_the_open_inference_protocol(synthetic: Synthetic, client: Client, shape: list[int]) -> None:
    entry = {"name": "inputs", "datatype": "BYTES", "shape": shape}
    as_json = {"inputs": [{**entry, "data": TEXTS}], "outputs": [{"name": "mean"}]}
    response = post(client, as_json, INFER)
    expected = synthetic.mean(PACKED)
    np.testing.assert_allclose(np.reshape(outputs(response)["mean"]["data"], (3, 3)), expected, rtol=1e-4, atol=1e-5)
    raw = b"".join(struct.pack("<I", len(text.encode())) + text.encode() for text in TEXTS)
    head = json.dumps({"inputs": [{**entry, "parameters": {"binary_data_size": len(raw)}}]}).encode()
    response = post(client, head + raw, INFER, inference_header_content_length=str(len(head)))
    assert outputs(response)["probabilities"]["shape"] == [3, 3]
    assert response.json()["parameters"]["warnings"].startswith("inputs[0]: has more than the 4 tokens")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"name": "input_ids"}, "expected 'inputs', of texts"),
        ({"shape": [1, 2], "data": ["a", "b"]}, "expected (batch,) or (batch, 1): a text an element"),
        ({"data": [3]}, "expected a text"),
        ({"data": ["a" * (MAX_CHARACTERS + 1)]}, "found 100001 characters"),
    ],
)
def test_protocol_requests_that_are_refused(client: Client, changes: Any, words: str) -> None:
    entry = {"name": "inputs", "datatype": "BYTES", "shape": [1], "data": ["a"], **changes}
    response = post(client, {"inputs": [entry]}, INFER)
    assert response.status_code in (400, 413, 422)
    assert words in response.json()["error"]


def test_bytes_that_are_no_text_are_refused(client: Client) -> None:
    raw = struct.pack("<I", 2) + b"\xff\xfe"
    entry = {"name": "inputs", "datatype": "BYTES", "shape": [1], "parameters": {"binary_data_size": len(raw)}}
    head = json.dumps({"inputs": [entry]}).encode()
    response = post(client, head + raw, INFER, inference_header_content_length=str(len(head)))
    assert "expected texts in UTF-8" in response.json()["error"]


def test_the_model_card_says_so(client: Client) -> None:
    assert client.get("/model").json()["input"]["text"] == {"takes": ["mask", "ids"]}


# --------------------------------------------------------------------------- the bundle


def test_the_tokenizer_is_a_file_of_the_bundle(synthetic: Synthetic, tmp_path: Path) -> None:
    bundle = read_bundle(synthetic.path)
    assert bundle.tokenizer == tokenizer_json() == (synthetic.path / TOKENIZER).read_bytes()
    copy = rewrite(synthetic.path, tmp_path / "copy")
    assert read_bundle(copy).manifest == bundle.manifest


def test_a_changed_tokenizer_is_refused(synthetic: Synthetic, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(synthetic.path, tmp_path / "copy"))
    (copy / TOKENIZER).write_bytes(tokenizer_json().replace(b"good", b"fine"))
    with pytest.raises(BundleError, match=r"tokenizer\.json: found sha256 .*the file was changed"):
        Predictor.load(copy)


@pytest.mark.parametrize(
    ("data", "words"), [(tokenizer_json(5), "expected at most, and exactly, 4"), (b"{}", "no tokenizer")]
)
def test_a_tokenizer_that_does_not_suit_is_refused(tmp_path: Path, data: bytes, words: str) -> None:
    path = write_linear(tmp_path / "bundle", outputs=3, spec=TEXT_SPEC, tokenizer=data).path
    with pytest.raises(BundleError, match=rf"tokenizer\.json: .*{words}.*\(remedy: fit the bundle again\)"):
        Predictor.load(path)


def test_a_tokenizer_must_be_there_where_texts_are_and_nowhere_else(synthetic: Synthetic, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"tokenizer: found none, expected one where the manifest has input\.text"):
        rewrite(synthetic.path, tmp_path / "without", tokenizer=None)
    bundle = read_bundle(synthetic.path)
    files = {name: entry for name, entry in bundle.manifest.files.items() if name != TOKENIZER}
    missing = Path(shutil.copytree(synthetic.path, tmp_path / "missing"))
    (missing / TOKENIZER).unlink()
    reseal_manifest(missing, dataclasses.replace(bundle.manifest, files=files))
    with pytest.raises(BundleError, match=r"files: 'tokenizer\.json' is not listed"):
        read_bundle(missing)
    extra = Path(shutil.copytree(synthetic.path, tmp_path / "extra"))
    spec = dataclasses.replace(bundle.manifest.input, text=None)
    reseal_manifest(extra, dataclasses.replace(bundle.manifest, input=spec))
    with pytest.raises(BundleError, match=r"found 'tokenizer\.json', expected none: input\.text is null"):
        read_bundle(extra)


IDS, MASK = InputPart("ids", (4,), "int64"), InputPart("mask", (4,), "int64")


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (
            {"shape": (8,), "parts": (IDS, MASK), "takes": ("ids",)},
            r"takes: found \('ids',\), expected one for each of 2",
        ),
        ({"shape": (8,), "parts": (IDS, MASK), "takes": ("ids", "ids")}, "no two alike"),
        ({"shape": (8,), "parts": (IDS, MASK), "takes": ("mask", "types")}, "'ids' among them"),
        ({"shape": (4,), "takes": ("ids",)}, "expected int64 and one length"),
        ({"shape": (4, 2), "dtype": "int64", "takes": ("ids",)}, "expected int64 and one length"),
        (
            {"shape": (9,), "parts": (IDS, InputPart("mask", (5,), "int64")), "takes": ("ids", "mask")},
            "expected int64 and one length",
        ),
    ],
)
def test_specs_that_are_refused(spec: dict[str, Any], message: str) -> None:
    takes = spec.pop("takes")
    with pytest.raises(ManifestError, match=message):
        InputSpec(**spec, text=InputText(takes))
