"""A bundle whose noise depends on the input: standard deviations, intervals and what answers say of them."""

import dataclasses
import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from demur.service.bundle import BundleError, read_bundle, read_manifest
from demur.service.format.manifest_json import manifest_from_json, to_json
from demur.service.format.model_card import model_card
from demur.service.format.rules import ManifestError
from demur.service.inference.predictor import Prediction, Predictor
from tests.support.added import ADDED, NOISE, added_variance, noise_scale, with_added_weights, write_added
from tests.support.bundles import FEATURE_SPEC, Array, Synthetic, in_chunks, rewrite
from tests.support.client import Client, serving
from tests.support.v2 import outputs, post

INPUTS = np.random.default_rng(7).normal(size=(70, *FEATURE_SPEC.shape)).astype(np.float32)
INPUTS[:, 0] = np.abs(INPUTS[:, 0])
SIGMA = 0.5


@pytest.fixture(scope="module")
def synthetic(tmp_path_factory: pytest.TempPathFactory) -> Synthetic:
    return write_added(tmp_path_factory.mktemp("noise"), regression=True, by_input=True)


@pytest.fixture(scope="module")
def client(synthetic: Synthetic) -> Iterator[Client]:
    with serving(Predictor.load(synthetic.path)) as client:
        yield client


def expected_std(synthetic: Synthetic, inputs: Array) -> Array:
    """One example and output at a time."""
    variance, scale = synthetic.variance(inputs) + added_variance(inputs)[:, np.newaxis], noise_scale(inputs)
    found = np.zeros(variance.shape)
    for place in np.ndindex(*found.shape):
        found[place] = math.sqrt(variance[place] + (SIGMA * scale[place]) ** 2)
    return found


def test_the_deviation_has_the_noise_of_its_input(synthetic: Synthetic, tmp_path: Path) -> None:
    found = Predictor.load(in_chunks(synthetic.path, tmp_path / "bundle", 30)).predict(INPUTS)
    assert found.std is not None
    assert found.noise_scale is not None
    np.testing.assert_allclose(found.noise_scale, noise_scale(INPUTS), rtol=1e-6)
    np.testing.assert_allclose(found.std, expected_std(synthetic, INPUTS), rtol=1e-5)
    both = Prediction.concatenate([found.rows(0, 30), found.rows(30, 70)])
    np.testing.assert_array_equal(both.noise_scale, found.noise_scale)


def test_an_interval_is_as_wide_as_its_deviation(synthetic: Synthetic) -> None:
    predictor = Predictor.load(synthetic.path)
    found = predictor.predict(INPUTS)
    low, high = predictor.decision.intervals(found)
    ratio = (high - low) / expected_std(synthetic, INPUTS)
    np.testing.assert_allclose(ratio, np.broadcast_to(ratio[0], ratio.shape), rtol=1e-5)


def test_the_score_does_not_depend_on_it(synthetic: Synthetic, tmp_path: Path) -> None:
    same = Predictor.load(write_added(tmp_path, regression=True).path).predict(INPUTS)
    found = Predictor.load(synthetic.path).predict(INPUTS)
    np.testing.assert_array_equal(found.score, same.score)
    np.testing.assert_array_equal(found.rejected, same.rejected)


def test_an_answer_gives_the_noise_of_each_example(synthetic: Synthetic, client: Client) -> None:
    answers = client.predict({"inputs": INPUTS.tolist()}, "?detail=full").json()["predictions"]
    for i, one in enumerate(answers):
        assert one["noise_std"] == pytest.approx(SIGMA * noise_scale(INPUTS)[i], rel=1e-5)
        squares = np.square(one["noise_std"]) + one["variance"]
        assert np.square(one["std"]) == pytest.approx(squares, rel=1e-4)


def test_the_open_inference_protocol_gives_the_scale(synthetic: Synthetic, client: Client) -> None:
    path = f"/v2/models/{synthetic.manifest.name}"
    described = {output["name"]: output for output in client.get(path).json()["outputs"]}
    assert described["noise_scale"] == {"name": "noise_scale", "datatype": "FP32", "shape": [-1, 3]}
    tensor = {"name": "inputs", "shape": list(INPUTS.shape), "datatype": "FP32", "data": INPUTS.ravel().tolist()}
    found = outputs(post(client, {"inputs": [tensor]}, f"{path}/infer"))
    assert found["noise_scale"]["data"] == pytest.approx(noise_scale(INPUTS).ravel(), rel=1e-5)


def test_a_noise_that_is_not_finite_is_rejected(synthetic: Synthetic) -> None:
    inputs = INPUTS[:2].copy()
    inputs[1, 1] = np.nan
    found = Predictor.load(synthetic.path).predict(inputs)
    assert found.rejected[1]
    assert found.finite.tolist() == [True, False]


def test_the_manifest_is_read_back_and_one_of_before_lacks_it(synthetic: Synthetic, tmp_path: Path) -> None:
    assert read_bundle(synthetic.path).manifest.input_noise == NOISE
    same = write_added(tmp_path, regression=True)
    document = to_json(read_manifest(same.path)[0])
    assert "noise" not in document["added_weights"]
    assert manifest_from_json(document).input_noise is None


def test_the_graph_must_give_what_the_manifest_says(synthetic: Synthetic, tmp_path: Path) -> None:
    manifest = with_added_weights(synthetic.manifest, added_weights=ADDED)
    rewrite(synthetic.path, tmp_path / "other", manifest=manifest)
    with pytest.raises(BundleError, match="found the graph signature"):
        Predictor.load(tmp_path / "other")


def test_a_classification_has_no_noise(tmp_path: Path) -> None:
    synthetic = write_added(tmp_path)
    with pytest.raises(ManifestError, match=r"added_weights\.noise: .* expected null, but of a regression"):
        dataclasses.replace(synthetic.manifest, added_weights=dataclasses.replace(ADDED, noise=NOISE))


def test_the_page_of_a_bundle_says_that_it_depends_on_the_input(synthetic: Synthetic) -> None:
    metrics = {"calibration_log_likelihood": -1.0}
    assert "depend on the input" in model_card(dataclasses.replace(synthetic.manifest, metrics=metrics))
    added = dataclasses.replace(ADDED, noise=None)
    same = dataclasses.replace(synthetic.manifest, metrics=metrics, added_weights=added)
    assert "depend on the input" not in model_card(same)
