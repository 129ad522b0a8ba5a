"""The nodes of a standalone model against `demur.service.maths`, and both against the oracle, on named cases; those of
every score on outputs of any size."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from demur.offline.export.standalone.decision_graph import decide as decision_nodes
from demur.offline.export.standalone.decision_graph import score_of
from demur.service.bundle import Graph, InputSpec, Manifest
from demur.service.maths.rejection import RejectionRule
from demur.service.maths.score_distribution import ScoreDistribution
from demur.service.maths.scores import DISTANCE, EPISTEMIC_STD, PREDICTIVE_ENTROPY, SCORES, Scoring
from demur.service.maths.surprise import Component, LargestSurprise
from tests import reference
from tests.support.added import with_added_weights
from tests.support.decisions import decide
from tests.support.manifests import make_manifest
from tests.support.standalone import run_nodes, same_prediction

Array = npt.NDArray[Any]
CALIBRATION = np.sort(np.random.default_rng(1).normal(size=40))


def scored_rows(outputs: int) -> tuple[Array, Array]:
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
    mean, variance = scored_rows(outputs)
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
    rule, (mean, variance) = RejectionRule(CALIBRATION, 0.2), scored_rows(3)
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


HUGE, LARGEST = 1e30, float(np.finfo(np.float32).max)


@dataclass(frozen=True)
class Case:
    """Outputs and their variances (B, K); scores of the calibration data."""

    mean: Any
    variance: Any
    scores: Any = (0.1, 0.4, 0.4, 0.6, 0.9)
    regression: bool = False
    temperature: float = 1.0
    map_temperature: float | None = None
    added: bool = False
    alpha: float = 0.4

    @property
    def arrays(self) -> tuple[Array, Array]:
        return np.array(self.mean, np.float32), np.array(self.variance, np.float32)

    @property
    def manifest(self) -> Manifest:
        manifest = make_manifest(
            outputs=self.arrays[0].shape[1],
            parameter_count=6,
            size=6,
            spec=InputSpec(shape=(2,)),
            scores=np.array(self.scores),
            regression=self.regression,
            alpha=self.alpha,
            temperature=self.temperature,
            map_temperature=self.plain_temperature,
        )
        return with_added_weights(manifest) if self.added else manifest

    @property
    def plain_temperature(self) -> float:
        return self.temperature if self.map_temperature is None else self.map_temperature

    @property
    def rule(self) -> RejectionRule:
        return RejectionRule(np.array(self.scores, np.float64), self.alpha)

    def nodes(self) -> dict[str, Array]:
        mean, variance = self.arrays
        manifest, rule = self.manifest, self.rule
        return run_nodes(
            lambda add, m, v: decision_nodes(add, m, v, manifest, rule), mean_in=mean, variance_in=variance
        )


def drawn(batch: int, outputs: int, scale: float = 3.0) -> tuple[Array, Array]:
    rng = np.random.default_rng(outputs)
    return rng.normal(scale=scale, size=(batch, outputs)), rng.exponential(scale, (batch, outputs))


FINITE = {
    "many examples": Case(*drawn(200, 10), scores=np.sort(np.random.default_rng(1).uniform(0, 2.3, 300)), alpha=0.05),
    "one example": Case(*drawn(1, 10)),
    "two classes": Case(*drawn(30, 2), scores=np.linspace(0, 0.69, 50)),
    "300 classes": Case(*drawn(5, 300), scores=np.linspace(0, 5.7, 50)),
    "temperature": Case(*drawn(30, 4), temperature=2.5),
    "tiny temperature": Case(*drawn(30, 4), temperature=1e-6),
    "another temperature of the plain network": Case(*drawn(30, 4), temperature=0.5, map_temperature=1.5),
    "one divisor for all logits": Case(*drawn(30, 4), temperature=0.5, map_temperature=1.5, added=True),
    "one divisor, of huge variances": Case([[1, 2, 3]] * 2, [[HUGE, HUGE, 0], [LARGEST, LARGEST, LARGEST]], added=True),
    "no variance": Case([[1.0, 2.0, 3.0]], [[0.0, 0.0, 0.0]]),
    "equal logits": Case([[7.0, 7.0, 7.0]], [[1.0, 1.0, 1.0]]),
    "certain, as calibration examples were": Case(
        [[0, 1e4], [0, 800], [0, 40]], [[0, 0]] * 3, (0.0, 0.0, 0.1, 0.2, 0.3)
    ),
    "probabilities around the smallest number": Case([[0, -g] for g in range(700, 760)], [[0, 0]] * 60),
    "huge logits": Case([[HUGE, -HUGE, 0], [LARGEST, -LARGEST, 1]], [[1, 1, 1]] * 2),
    "huge variances": Case([[1, 2, 3]] * 2, [[HUGE, HUGE, 0], [LARGEST, LARGEST, LARGEST]]),
    "one output": Case(*drawn(30, 1), regression=True),
    "three outputs": Case(*drawn(30, 3), regression=True),
    "20 outputs": Case(*drawn(30, 20), regression=True),
    "variances of zero and of the largest number": Case([[0, 0]] * 2, [[0, 0], [LARGEST, LARGEST]], regression=True),
    "scores of calibration examples": Case(
        [[0, 0]] * 5,
        [[x, 1.7] for x in (0.1, 0.2, 0.3, 0.4, 0.5)],
        regression=True,
        scores=[math.sqrt((float(np.float32(x)) + float(np.float32(1.7))) / 2) for x in (0.1, 0.2, 0.3, 0.4, 0.5)],
    ),
}
NOT_FINITE = {
    "classification": Case(
        [[np.nan, 1, 2], [np.inf, 1, 2], [-np.inf, 1, 2], [np.inf, np.nan, np.inf], [1, 2, 3], [1, 2, 3], [1, 2, 3]],
        [[1, 1, 1], [1, 1, 1], [1, 1, 1], [1, 1, 1], [np.nan, 1, 1], [np.inf, 1, 1], [1, 1, 1]],
    ),
    "too few scores to reject anything else": Case([[np.nan, 1], [1, 2]], [[1, 1], [1, 1]], alpha=0.1),
    "regression": Case(
        [[np.nan, 1], [np.inf, 1], [1, 1], [1, 1], [1, 1]], [[1, 1], [1, 1], [np.nan, 1], [1, np.inf], [0.1, 0.1]],
        regression=True,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", [*FINITE, *NOT_FINITE])
def test_the_nodes_compute_what_the_service_computes(name: str) -> None:
    case = {**FINITE, **NOT_FINITE}[name]
    with np.errstate(invalid="ignore", over="ignore"):  # as in `Predictor.predict`
        expected = decide(*case.arrays, case.manifest, case.rule)
    same_prediction(case.nodes(), expected, rtol=1e-13)


@pytest.mark.parametrize("name", NOT_FINITE)
def test_an_example_that_is_not_finite_is_rejected(name: str) -> None:
    found = NOT_FINITE[name].nodes()
    assert found["rejected"].tolist()[:-1] == [True] * (len(found["rejected"]) - 1)
    assert np.isposinf(found["score"]).tolist() == [True] * (len(found["score"]) - 1) + [False]
    assert found["p_value"][:-1].tolist() == [1 / 6] * (len(found["p_value"]) - 1)


@pytest.mark.parametrize("name", [name for name, case in FINITE.items() if not case.regression])
def test_nodes_and_service_are_what_the_oracle_says(name: str) -> None:
    case = FINITE[name]
    mean, variance = (array.astype(np.float64) for array in case.arrays)
    # softmax(f / sqrt(T^2 + pi/8 v)) = softmax(g / sqrt(1 + pi/8 w)) for g = f / T, w = v / T^2
    t = case.temperature
    if case.added:
        variance = np.tile(variance.mean(axis=1, keepdims=True), (1, variance.shape[1]))
    probabilities = reference.probit_probabilities(mean / t, variance / t**2)
    plain = np.stack([reference.softmax(row) for row in mean / case.plain_temperature])
    total = np.array([reference.entropy(p) for p in probabilities])
    aleatoric = np.minimum([reference.entropy(p) for p in plain], total)
    wanted = {"probabilities": probabilities, "map_probabilities": plain, "total": total, "aleatoric": aleatoric}
    wanted |= {"score": total, "epistemic": total - aleatoric}
    service = decide(*case.arrays, case.manifest, case.rule)
    for found in (case.nodes(), vars(service)):
        for field, values in wanted.items():
            np.testing.assert_allclose(found[field], values, rtol=1e-9, atol=1e-12, err_msg=field)
        check_decision(found, case)


@pytest.mark.parametrize("name", [name for name, case in FINITE.items() if case.regression])
def test_a_regression_is_what_the_oracle_says(name: str) -> None:
    case = FINITE[name]
    variance = case.arrays[1].astype(np.float64)
    service = decide(*case.arrays, case.manifest, case.rule)
    for found in (case.nodes(), vars(service)):
        std = [[math.sqrt(v + 0.5**2) for v in row] for row in variance]
        np.testing.assert_allclose(found["std"], std, rtol=1e-13)
        np.testing.assert_allclose(found["score"], [math.sqrt(sum(row) / len(row)) for row in variance], rtol=1e-13)
        check_decision(found, case)


def check_decision(found: Any, case: Case) -> None:
    n = len(case.scores)
    p = [(1 + sum(other >= score for other in case.scores)) / (n + 1) for score in found["score"]]
    assert found["p_value"].tolist() == p
    assert found["rejected"].tolist() == [value <= case.alpha for value in p]


# --------------------------------------------------------------------------- variances from a Jacobian
