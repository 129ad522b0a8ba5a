"""Each score against the oracle, and the registry of them."""

from typing import Any, get_args

import numpy as np
import numpy.typing as npt
import pytest

from demur.service.inference.graph import GraphOutputs
from demur.service.inference.prediction import Predictive
from demur.service.maths.scores import (
    EPISTEMIC_STD,
    MISTAKES,
    SCORES,
    SingleScoreName,
    epistemic_std,
    likeliest_mistake,
)
from tests import reference

Array = npt.NDArray[Any]


def entropy_of(mean: Array, variance: Array, temperature: float = 1.0) -> Array:
    """The score of classes by default."""
    return Predictive(temperature=temperature).undecided(GraphOutputs(mean, variance)).score


@pytest.mark.parametrize("classes", [2, 10, 130])
def test_classification(classes: int) -> None:
    rng = np.random.default_rng(classes)
    mean = (4 * rng.standard_normal((6, classes))).astype(np.float32)
    variance = (5 * rng.random((6, classes))).astype(np.float32)
    found = entropy_of(mean, variance, 1.7)
    expected = [
        reference.predictive_entropy(f, v, 1.7) for f, v in zip(mean.astype(float), variance.astype(float), strict=True)
    ]
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-14)
    assert found.dtype == np.float64


def test_regression() -> None:
    variance, noises = np.array([[1.0, 3.0], [0.0, 0.0]], np.float32), np.array([0.5, 0.5])
    np.testing.assert_allclose(epistemic_std(variance, noises), [np.sqrt(2), 0])
    served = Predictive(noises).undecided(GraphOutputs(np.zeros((2, 2), np.float32), variance))
    np.testing.assert_allclose(served.score, [np.sqrt(2), 0])


def test_outputs_in_different_units_count_alike() -> None:
    """v_k / r_k^2 with r_k = sigma_k / sigma, sigma = sqrt(0.1 * 1000) = 10."""
    found = epistemic_std(np.array([[1.0, 3e6]], np.float32), np.array([0.1, 1000.0]))
    mean = (1.0 / 0.01**2 + 3e6 / 100**2) / 2
    np.testing.assert_allclose(found, [np.sqrt(mean)])


def test_finite_wherever_the_outputs_are() -> None:
    largest = np.finfo(np.float32).max
    mean = np.array([[0, 0, 0], [largest, -largest, 0], [largest] * 3, [1e-30, 0, 0]], np.float32)
    for variance in (np.zeros_like(mean), np.full_like(mean, largest)):
        assert np.isfinite(entropy_of(mean, variance)).all()


def test_larger_where_the_network_knows_less() -> None:
    mean = np.array([[9.0, 0, 0], [1.0, 0.5, 0]], np.float32)
    variance = np.array([[0.1, 0.1, 0.1], [8.0, 8.0, 8.0]], np.float32)
    sure, unsure = entropy_of(mean, variance)
    assert unsure > sure


@pytest.mark.parametrize("name", SCORES)
def test_a_single_score_is_the_one_of_its_name(name: str) -> None:
    singles = {other: np.full(2, place, np.float32) for place, other in enumerate(SCORES)}
    found, leading = SCORES[name].scored(singles)
    np.testing.assert_array_equal(found, singles[name])
    assert leading is None
    assert found.dtype == np.float64


def test_a_regression_may_have_the_distance_instead() -> None:
    outputs = GraphOutputs(np.zeros((2, 1), np.float32), np.ones((2, 1), np.float32), {"distance": np.array([3.0, 4])})
    noises = np.array([0.5])
    assert Predictive(noises, scoring=SCORES["distance"]).undecided(outputs).score.tolist() == [3, 4]
    assert Predictive(noises, scoring=EPISTEMIC_STD).undecided(outputs).score.tolist() == [1, 1]


def test_the_registry_is_the_list_of_names() -> None:
    assert set(SCORES) == set(get_args(SingleScoreName))
    assert all(name == score.name for name, score in SCORES.items())
    ordinary = [score.title for name, score in SCORES.items() if name not in MISTAKES]
    assert len(set(ordinary)) == len(ordinary)


def test_the_likeliest_mistake_is_the_largest_above_zero() -> None:
    features = {"distance": [9, 9, 9, 9.0], "inverted": [-1, 2, 1, np.nan], "solarised": [-2, 1, 3, 1.0]}
    found = likeliest_mistake({name: np.array(values) for name, values in features.items()})
    assert found is not None
    assert found.tolist() == [-1, 0, 1, -1]
    assert likeliest_mistake({"distance": np.ones(2)}) is None
