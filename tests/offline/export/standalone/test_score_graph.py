"""The nodes of every score against `demur.service.maths`, on outputs of any size."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from demur.offline.export.standalone.decision_graph import decide as decision_nodes
from demur.offline.export.standalone.score_graph import score_of
from demur.service.bundle import Graph, InputSpec
from demur.service.maths.rejection import RejectionRule
from demur.service.maths.score_distribution import ScoreDistribution
from demur.service.maths.scores import DISTANCE, EPISTEMIC_STD, PREDICTIVE_ENTROPY, SCORES, Scoring
from demur.service.maths.surprise import Component, LargestSurprise
from tests.support.decisions import decide
from tests.support.manifests import make_manifest
from tests.support.standalone import run_nodes, same_prediction

Array = npt.NDArray[Any]
CALIBRATION = np.sort(np.random.default_rng(1).normal(size=40))


def drawn(outputs: int) -> tuple[Array, Array]:
    """Ordinary rows, equal logits, certain ones, no variance, and some that are not finite."""
    rng = np.random.default_rng(outputs)
    mean, variance = rng.normal(scale=3, size=(40, outputs)), rng.exponential(3, (40, outputs))
    mean[0], mean[1], variance[2] = 7.0, np.where(np.arange(outputs) == 0, 900, 0), 0.0
    mean[3, 0], mean[4, 0], variance[5, 0] = np.nan, np.inf, np.nan
    return mean.astype(np.float32), variance.astype(np.float32)


def check(scoring: Scoring, outputs: int, regression: bool, temperature: float = 1.0) -> None:
    manifest = make_manifest(
        outputs=outputs,
        parameter_count=6,
        size=6,
        spec=InputSpec(shape=(2,)),
        scores=CALIBRATION,
        regression=regression,
        alpha=0.2,
        temperature=temperature,
    )
    mean, variance = drawn(outputs)
    rule = RejectionRule(CALIBRATION, 0.2)
    with np.errstate(invalid="ignore", over="ignore"):
        expected = decide(mean, variance, manifest, rule, scoring)
    found = run_nodes(
        lambda add, m, v: decision_nodes(add, m, v, manifest, rule, scoring), mean_in=mean, variance_in=variance
    )
    same_prediction(found, expected, rtol=1e-12)


@pytest.mark.parametrize("outputs", [2, 10, 150])
def test_a_score_of_a_classification(outputs: int) -> None:
    check(PREDICTIVE_ENTROPY, outputs, regression=False, temperature=1.0 if outputs == 2 else 2.5)


@pytest.mark.parametrize("outputs", [1, 3])
def test_a_score_of_a_regression(outputs: int) -> None:
    check(EPISTEMIC_STD, outputs, regression=True)


def test_a_surprise_of_tied_values() -> None:
    distribution = ScoreDistribution.of(np.array([0.0] * 19 + [3.0]))
    assert distribution is not None
    assert len(distribution.values) == 1
    check(LargestSurprise((Component(PREDICTIVE_ENTROPY, distribution),)), 10, regression=False)


@pytest.mark.parametrize("shape", [0.0, 1e-12, 1e-6, 0.01, 0.9])
def test_a_pareto_tail(shape: float) -> None:
    distribution = ScoreDistribution(np.array([-1.0, 0.0]), np.array([0.0, np.log(10)]), 1e-3, shape)
    check(LargestSurprise((Component(PREDICTIVE_ENTROPY, distribution),)), 10, regression=False)


@pytest.mark.parametrize("end", [0.5, 1.0, 100.0])
def test_a_surprise_of_odds(end: float) -> None:
    """The entropies reach log 10, 2.3: far below the end, next to it and beyond."""
    distribution = ScoreDistribution(np.array([0.01, 0.1]), np.array([0.0, np.log(10)]), 0.1, 0.5)
    check(LargestSurprise((Component(PREDICTIVE_ENTROPY, distribution, end=end),)), 10, regression=False)


@pytest.mark.parametrize("examples", [2, 30, 1000])
def test_a_surprise_alone(examples: int) -> None:
    distribution = ScoreDistribution.of(np.random.default_rng(examples).standard_t(3, examples))
    assert distribution is not None
    check(LargestSurprise((Component(PREDICTIVE_ENTROPY, distribution),)), 10, regression=False)


@pytest.mark.parametrize(
    "names", [("predictive_entropy", "distance"), ("distance", "predictive_entropy"), tuple(SCORES)]
)
@pytest.mark.parametrize("examples", [2, 30, 1000])
def test_the_largest_surprise(names: tuple[str, ...], examples: int) -> None:
    rng = np.random.default_rng(examples)
    parts: list[Component] = []
    for name in names:
        distribution = ScoreDistribution.of(rng.standard_t(3, examples))
        assert distribution is not None
        parts.append(Component(SCORES[name], distribution, np.log(20) if parts else 0.0))
    largest = LargestSurprise(tuple(parts))
    singles = {name: rng.normal(scale=3, size=40) for name in names}
    expected, leading = largest.scored(singles)
    found = run_nodes(
        lambda add, *values: {"score": score_of(add, largest, dict(zip(names, values, strict=True)))}, **singles
    )
    np.testing.assert_allclose(found["score"], expected, rtol=1e-12)
    assert len(set(leading.tolist())) > 1


@pytest.mark.parametrize("kind", ["single", "surprise"])
def test_a_score_of_the_features(kind: str) -> None:
    """Also where such a score alone is not finite."""
    graph = Graph(10, feature_scores=("distance",))
    manifest = make_manifest(
        outputs=3, parameter_count=6, size=6, spec=InputSpec(shape=(2,)), scores=CALIBRATION, alpha=0.2, graph=graph
    )
    distribution = ScoreDistribution(np.array([1.0, 4.0]), np.array([0.0, 2.3]), 2.0, 0.4)
    largest = LargestSurprise((Component(PREDICTIVE_ENTROPY, distribution), Component(DISTANCE, distribution, 3.0)))
    scorings: dict[str, Scoring] = {"single": DISTANCE, "surprise": largest}
    scoring = scorings[kind]
    rule, (mean, variance) = RejectionRule(CALIBRATION, 0.2), drawn(3)
    columns = np.random.default_rng(1).exponential(3, (len(mean), 1)).astype(np.float32)
    columns[10, 0], columns[11, 0], columns[12, 0] = np.nan, np.inf, np.finfo(np.float32).max
    features = dict(zip(manifest.feature_scores, columns.T, strict=True))
    with np.errstate(invalid="ignore", over="ignore"):
        expected = decide(mean, variance, manifest, rule, scoring, features)
    found = run_nodes(
        lambda add, m, v, f: decision_nodes(add, m, v, manifest, rule, scoring, f),
        mean_in=mean,
        variance_in=variance,
        features_in=columns,
    )
    same_prediction(found, expected, rtol=1e-12)
    assert expected.rejected[10:12].all()
    np.testing.assert_array_equal(np.isfinite(expected.score[10:13]), [False, False, True])
