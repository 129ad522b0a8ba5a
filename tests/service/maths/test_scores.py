"""Each score against the oracle, and the registry of them."""

from typing import Any, get_args

import numpy as np
import numpy.typing as npt
import pytest

from demur.service.maths.predictive import class_probabilities
from demur.service.maths.score_outputs import ClassOutputs, RegressionOutputs
from demur.service.maths.scores import (
    CLASSIFICATION_SCORES,
    REGRESSION_SCORES,
    SCORES,
    SingleScoreName,
)
from tests import reference

Array = npt.NDArray[Any]


def outputs_of(mean: Array, variance: Array, temperature: float = 1.0) -> ClassOutputs:
    return ClassOutputs(mean, variance, class_probabilities(mean, variance, temperature), temperature)


@pytest.mark.parametrize("name", CLASSIFICATION_SCORES)
@pytest.mark.parametrize("classes", [2, 10, 130])
def test_classification(name: str, classes: int) -> None:
    rng = np.random.default_rng(classes)
    mean = (4 * rng.standard_normal((6, classes))).astype(np.float32)
    variance = (5 * rng.random((6, classes))).astype(np.float32)
    found, leading = CLASSIFICATION_SCORES[name].scored(outputs_of(mean, variance, 1.7))
    expected = [
        reference.class_scores(f, v, 1.7)[name] for f, v in zip(mean.astype(float), variance.astype(float), strict=True)
    ]
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-14)
    assert leading is None
    assert found.dtype == np.float64


def test_regression() -> None:
    outputs = RegressionOutputs(np.array([[1.0, 3.0], [0.0, 0.0]], np.float32), np.array([0.5, 0.5]))
    found = {name: score.scored(outputs)[0] for name, score in REGRESSION_SCORES.items()}
    np.testing.assert_allclose(found["epistemic_std"], [np.sqrt(2), 0])
    np.testing.assert_allclose(found["predictive_std"], [1.5, 0.5])


def test_outputs_in_different_units_count_alike() -> None:
    """v_k / r_k^2 with r_k = sigma_k / sigma, sigma = sqrt(0.1 * 1000) = 10."""
    outputs = RegressionOutputs(np.array([[1.0, 3e6]], np.float32), np.array([0.1, 1000.0]))
    found = {name: score.scored(outputs)[0] for name, score in REGRESSION_SCORES.items()}
    mean = (1.0 / 0.01**2 + 3e6 / 100**2) / 2
    np.testing.assert_allclose(found["epistemic_std"], [np.sqrt(mean)])
    np.testing.assert_allclose(found["predictive_std"], [np.sqrt(mean + 100)])


@pytest.mark.parametrize("name", CLASSIFICATION_SCORES)
def test_finite_wherever_the_outputs_are(name: str) -> None:
    largest = np.finfo(np.float32).max
    mean = np.array([[0, 0, 0], [largest, -largest, 0], [largest] * 3, [1e-30, 0, 0]], np.float32)
    for variance in (np.zeros_like(mean), np.full_like(mean, largest)):
        assert np.isfinite(CLASSIFICATION_SCORES[name].scored(outputs_of(mean, variance))[0]).all()


@pytest.mark.parametrize("name", CLASSIFICATION_SCORES)
def test_larger_where_the_network_knows_less(name: str) -> None:
    mean = np.array([[9.0, 0, 0], [1.0, 0.5, 0]], np.float32)
    variance = np.array([[0.1, 0.1, 0.1], [8.0, 8.0, 8.0]], np.float32)
    sure, unsure = CLASSIFICATION_SCORES[name].scored(outputs_of(mean, variance))[0]
    assert unsure > sure


def test_the_registry_is_the_list_of_names() -> None:
    assert set(SCORES) == set(get_args(SingleScoreName))
    assert all(name == score.name for name, score in SCORES.items())
    assert len({score.title for score in SCORES.values()}) == len(SCORES)
