"""Added weights: their part of the variances, and the two temperatures."""

import dataclasses
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from demur.service.bundle import BundleError, read_bundle
from demur.service.inference.predictor import Predictor
from tests import reference
from tests.support.added import added_variance, write_added
from tests.support.bundles import FEATURE_SPEC, Synthetic, in_chunks, rewrite

Array = npt.NDArray[Any]


@pytest.fixture(scope="module")
def synthetic(tmp_path_factory: pytest.TempPathFactory) -> Synthetic:
    return write_added(tmp_path_factory.mktemp("added"))


def inputs(rows: int) -> Array:
    return np.random.default_rng(0).normal(size=(rows, *FEATURE_SPEC.shape)).astype(np.float32)


def test_their_variance_is_part_of_each_outputs(synthetic: Synthetic, tmp_path: Path) -> None:
    x = inputs(100)  # in several chunks
    found = Predictor.load(in_chunks(synthetic.path, tmp_path / "bundle", 30)).predict(x)
    added = added_variance(x)
    assert found.added_variance is not None
    np.testing.assert_allclose(found.added_variance, added, rtol=1e-5)
    np.testing.assert_allclose(found.variance, synthetic.variance(x) + added[:, np.newaxis], rtol=1e-5)
    np.testing.assert_array_equal(found.rows(3, 5).added_variance, found.added_variance[3:5])


def test_probabilities_have_one_divisor_and_the_plain_network_its_own_temperature(synthetic: Synthetic) -> None:
    x = inputs(8)
    found = Predictor.load(synthetic.path).predict(x)
    assert found.probabilities is not None
    assert found.map_probabilities is not None
    variance = synthetic.variance(x) + added_variance(x)[:, np.newaxis]
    for i, mean in enumerate(synthetic.mean(x)):
        divisor = reference.probit_divisor(variance[i].mean(), 0.5)
        np.testing.assert_allclose(found.probabilities[i], reference.softmax(mean / divisor), rtol=1e-4)
        np.testing.assert_allclose(found.map_probabilities[i], reference.softmax(mean / 1.5), rtol=1e-4)
    np.testing.assert_array_equal(found.probabilities.argmax(axis=1), found.mean.argmax(axis=1))


def test_a_regression_has_them_too(tmp_path: Path) -> None:
    synthetic = write_added(tmp_path, regression=True)
    x = inputs(4)
    found = Predictor.load(synthetic.path).predict(x)
    variance = synthetic.variance(x) + added_variance(x)[:, np.newaxis]
    assert found.std is not None
    assert found.added_variance is not None
    np.testing.assert_allclose(found.std, np.sqrt(variance + 0.5**2), rtol=1e-5)
    np.testing.assert_allclose(found.added_variance, added_variance(x), rtol=1e-5)


def test_a_bundle_without_them_has_no_such_part(tmp_path: Path) -> None:
    synthetic = write_added(tmp_path)
    linear = Predictor.load(tmp_path / "linear")
    assert linear.predict(inputs(2)).added_variance is None
    manifest = dataclasses.replace(synthetic.manifest, added_weights=None, link="probit")
    rewrite(synthetic.path, tmp_path / "other", manifest=manifest)
    with pytest.raises(BundleError, match="found the graph signature"):
        Predictor.load(tmp_path / "other")


def test_they_survive_pickling(synthetic: Synthetic) -> None:
    predictor = Predictor.load(synthetic.path)
    again = pickle.loads(pickle.dumps(predictor))
    np.testing.assert_array_equal(again.predict(inputs(2)).added_variance, predictor.predict(inputs(2)).added_variance)


def test_the_manifest_is_read_back(synthetic: Synthetic) -> None:
    assert read_bundle(synthetic.path).manifest.added_weights == synthetic.manifest.added_weights
