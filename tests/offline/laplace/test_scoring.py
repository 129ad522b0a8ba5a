"""The weights of a fused score, and the choice between scores."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pytest

import demur.offline.laplace.scoring
from demur.offline.config import FitConfig
from demur.offline.data.likelihood import Classification
from demur.offline.evaluation.auroc import auroc
from demur.offline.laplace.score_weights import PENALTY, fit_weights
from demur.offline.laplace.scoring import CLEARLY, HeldOutOutputs, compare, fit_fused, largest_surprise
from demur.offline.laplace.scoring import outputs_of as outputs_from
from demur.service.maths.fused_score import FusedScore
from demur.service.maths.predictive import class_probabilities
from demur.service.maths.score_outputs import ClassOutputs
from demur.service.maths.scores import CLASSIFICATION_SCORES, Scoring

Array = npt.NDArray[Any]


def groups(useful: tuple[float, ...], seed: int = 0) -> tuple[Array, Array]:
    """Surprises of ordinary and shifted examples; score j rises by `useful[j]` under the shift."""
    rng = np.random.default_rng(seed)
    ordinary, shifted = (rng.exponential(size=(400, len(useful))) for _ in range(2))
    return ordinary, shifted + np.array(useful)


def outputs_of(scale: float, variance: float, seed: int, count: int = 200) -> ClassOutputs:
    rng = np.random.default_rng(seed)
    mean = (scale * rng.standard_normal((count, 5))).astype(np.float32)
    variances = (variance * rng.random((count, 5))).astype(np.float32)
    return ClassOutputs(mean, variances, class_probabilities(mean, variances, 1.0), 1.0)


def shifts() -> Iterator[tuple[str, ClassOutputs]]:
    for seed, name in enumerate(("noise", "inversion", "erasing", "blur", "rotation-90"), 1):
        yield name, outputs_of(1.0, 6.0, seed)


def test_scores_that_do_not_rise_get_no_weight() -> None:
    weights = fit_weights(*groups((2.0, 0.0, -1.0, 1.0)))
    assert weights.sum() == pytest.approx(1.0)
    assert (weights >= 0).all()
    assert weights[0] > weights[3] > 0.1
    assert weights[1] < 0.1
    assert weights[2] == 0


def test_a_constant_score_gets_no_weight() -> None:
    ordinary, shifted = groups((2.0, 0.0))
    ordinary[:, 1] = shifted[:, 1] = 3.0
    np.testing.assert_array_equal(fit_weights(ordinary, shifted), [1.0, 0.0])
    np.testing.assert_array_equal(fit_weights(ordinary[:, 1:], shifted[:, 1:]), [0.0])


def test_no_weights_where_nothing_rises() -> None:
    np.testing.assert_array_equal(fit_weights(*groups((-2.0, -2.0))), [0.0, 0.0])


def test_the_minimum_of_the_penalised_loss() -> None:
    """Every small step that keeps the weights non-negative makes the loss larger, at the best scale and intercept."""
    ordinary, shifted = groups((1.0, 0.7, -0.2), seed=3)
    both = np.concatenate([ordinary, shifted])
    scale = both.std(axis=0)
    standard = (both - both.mean(axis=0)) / scale

    def loss(w: Array) -> float:
        def at(b: float) -> float:
            margins = standard @ w + b
            plain = np.log1p(np.exp(margins[:400])).mean() + np.log1p(np.exp(-margins[400:])).mean()
            return float(plain + PENALTY * w @ w)

        return min(at(b) for b in np.linspace(-1, 1, 2001))

    direction = fit_weights(ordinary, shifted) * scale
    sizes = np.geomspace(0.1, 10, 400)
    best = direction * sizes[int(np.argmin([loss(direction * size) for size in sizes[::8]])) * 8]
    found = loss(best)
    for j in range(3):
        for step in (-0.1, 0.1):
            moved = best.copy()
            moved[j] = max(moved[j] + step, 0.0)
            if moved[j] != best[j]:
                assert loss(moved) > found - 1e-4


def test_the_same_data_give_the_same_weights() -> None:
    np.testing.assert_array_equal(fit_weights(*groups((1.0, 0.5))), fit_weights(*groups((1.0, 0.5))))


@pytest.mark.parametrize("score", ["auto", "fused"])
def test_all_scores_are_compared(score: Literal["auto", "fused"]) -> None:
    found = compare(FitConfig(score=score), outputs_of(6.0, 1.0, 0), dict(shifts()))
    assert [one.name for one in found.compared] == [*CLASSIFICATION_SCORES, "fused"]
    assert [one.name for one in found.compared if one.chosen] == [found.scoring.name]
    best = max(one.shift_auroc for one in found.compared)
    chosen = next(one for one in found.compared if one.chosen)
    assert chosen.shift_auroc > 0.9
    assert score == "fused" or chosen.shift_auroc >= best - CLEARLY
    assert score == "auto" or isinstance(found.scoring, FusedScore)


def test_every_kind_judges_weights_that_the_others_fitted() -> None:
    ordinary, shifted = outputs_of(6.0, 1.0, 0), dict(shifts()) | {"rotation-45": outputs_of(2.0, 3.0, 9)}
    found = compare(FitConfig(score="fused"), ordinary, shifted)
    by_kind: dict[str, list[float]] = {}
    for name, outputs in shifted.items():
        kind = name[:5]
        fused = fit_fused(ordinary, [other for key, other in shifted.items() if key[:5] != kind])
        assert fused is not None
        by_kind.setdefault(kind, []).append(auroc(fused.scored(ordinary)[0], fused.scored(outputs)[0]))
    expected = np.mean([np.mean(values) for values in by_kind.values()])
    assert found.compared[-1].shift_auroc == pytest.approx(expected)
    assert isinstance(found.scoring, FusedScore)
    assert parts(found.scoring) == parts(fit_fused(ordinary, list(shifted.values())))


def test_feature_scores_are_compared_where_there_are_any() -> None:
    """The logits tell nothing here, and the distance tells everything."""
    rng = np.random.default_rng(0)

    def with_features(shift: float, seed: int) -> ClassOutputs:
        outputs = outputs_of(3.0, 1.0, seed)
        return replace(outputs, features={"distance": rng.exponential(size=200) + shift})

    shifted = {name: with_features(9.0, seed) for seed, name in enumerate(("noise", "blur", "erasing"), 1)}
    found = compare(FitConfig(score="auto"), with_features(0.0, 0), shifted)
    assert [one.name for one in found.compared] == [*CLASSIFICATION_SCORES, "distance", "fused"]
    qualities = {one.name: one.shift_auroc for one in found.compared}
    assert qualities["distance"] > 0.99
    assert max(value for name, value in qualities.items() if name in CLASSIFICATION_SCORES) < 0.7


def test_by_default_either_of_two_surprises_suffices() -> None:
    rng = np.random.default_rng(0)
    ordinary = replace(outputs_of(6.0, 1.0, 0), features={"distance": rng.exponential(size=200)})
    joined = largest_surprise(ordinary)
    assert joined is not None
    assert [part.score.name for part in joined.components] == ["predictive_entropy", "distance"]
    limit = np.quantile(joined.scored(ordinary)[0], 0.95)
    far = replace(outputs_of(90.0, 0.0, 1), features={"distance": np.full(200, 30.0)})
    unsure = replace(outputs_of(0.1, 1.0, 2), features={"distance": np.zeros(200)})
    for foreign, place in ((far, 1), (unsure, 0)):
        score, leading = joined.scored(foreign)
        assert (score > limit).all()
        assert (leading == place).all()


def test_one_surprise_where_the_other_tells_nothing() -> None:
    ordinary = replace(outputs_of(6.0, 1.0, 0), features={"distance": np.zeros(200)})
    joined = largest_surprise(ordinary)
    assert joined is not None
    assert [part.score.name for part in joined.components] == ["predictive_entropy"]
    same = ClassOutputs(np.zeros((9, 3)), np.ones((9, 3)), np.full((2, 9, 3), 1 / 3), 1.0, {"distance": np.zeros(9)})
    assert largest_surprise(same) is None


@pytest.mark.parametrize(("margin", "chosen"), [(0.004, "fused"), (0.02, "energy")])
def test_a_single_score_must_be_clearly_better(margin: float, chosen: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def quality(scoring: Scoring, *_: object) -> float:
        return 0.9 + margin if scoring.name == "energy" else 0.9

    monkeypatch.setattr(demur.offline.laplace.scoring, "_quality", quality)
    found = compare(FitConfig(score="auto"), outputs_of(6.0, 1.0, 0), dict(shifts()))
    assert found.scoring.name == chosen


def test_examples_without_finite_feature_scores_are_left_out() -> None:
    features = {"distance": np.array([1.0, np.nan, np.inf, 2.0])}
    found = outputs_from(Classification(3), HeldOutOutputs(np.eye(4, 3), np.ones((4, 3)), features))
    assert found is not None
    np.testing.assert_array_equal(found.features["distance"], [1.0, 2.0])
    assert found.mean.shape == (2, 3)


def parts(fused: FusedScore | None) -> list[tuple[str, float]]:
    assert fused is not None
    return [(part.score.name, part.weight) for part in fused.components]


def test_scores_that_are_all_constant() -> None:
    same = ClassOutputs(np.zeros((9, 3)), np.ones((9, 3)), np.full((2, 9, 3), 1 / 3), 1.0)
    assert fit_fused(same, [outputs_of(1.0, 6.0, 1)]) is None
    with pytest.raises(ValueError, match="found no score that rises"):
        compare(FitConfig(score="fused"), same, {"noise": same})


def test_without_shifts() -> None:
    with pytest.raises(ValueError, match="found no synthetic shift"):
        compare(FitConfig(score="auto"), outputs_of(6.0, 1.0, 0), {})
