"""The choice of the score."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from demur.offline.data.changes import stream
from demur.offline.data.likelihood import Classification
from demur.offline.features.added_weights import SCORE_FEATURES, FeatureVariance
from demur.offline.features.mistakes import NAMED
from demur.offline.laplace.scoring import HeldOutOutputs, Raised, largest_surprise, singles_of
from demur.offline.runtime.arrays import Array, to_numpy
from demur.service.maths.exchangeability import DriftTest
from demur.service.maths.scores import SCORES


def drawn(scale: float, variance: float, seed: int, distance: Array, count: int = 200) -> dict[str, Array]:
    rng = np.random.default_rng(seed)
    mean, variances = scale * rng.standard_normal((count, 5)), variance * rng.random((count, 5))
    return singles_of(Classification(5), HeldOutOutputs(mean, variances, {"distance": distance}))


def test_by_default_either_of_two_surprises_suffices() -> None:
    rng = np.random.default_rng(0)
    ordinary = drawn(6.0, 1.0, 0, rng.exponential(size=200))
    joined = largest_surprise(ordinary)
    assert joined is not None
    assert [part.score.name for part in joined.components] == ["predictive_entropy", "distance"]
    limit = np.quantile(joined.scored(ordinary)[0], 0.95)
    far = drawn(90.0, 0.0, 1, np.full(200, 30.0))
    unsure = drawn(0.1, 1.0, 2, np.zeros(200))
    for foreign, place in ((far, 1), (unsure, 0)):
        score, leading = joined.scored(foreign)
        assert (score > limit).all()
        assert (leading == place).all()


def test_one_surprise_where_the_other_tells_nothing() -> None:
    ordinary = drawn(6.0, 1.0, 0, np.zeros(200))
    joined = largest_surprise(ordinary)
    assert joined is not None
    assert [part.score.name for part in joined.components] == ["predictive_entropy"]
    assert largest_surprise({"predictive_entropy": np.full(9, np.log(3)), "distance": np.zeros(9)}) is None


def test_an_odd_entropy_sets_no_threshold_that_nothing_far_reaches() -> None:
    """Of some dozens, none in the half that the tails are fitted to."""
    ordinary = {"predictive_entropy": np.linspace(0, 0.02, 40), "distance": np.linspace(0.02, 0.3, 40)}
    joined = largest_surprise(ordinary)
    assert joined is not None
    odd, far = ({"predictive_entropy": np.array([h]), "distance": np.array([v])} for h, v in ((0.6, 0.1), (0.0, 0.95)))
    assert joined.scored(odd)[0] < joined.scored(far)[0]


def test_what_is_named_is_rejected_by_its_likeness_and_nothing_else_is() -> None:
    rng, names = np.random.default_rng(0), ("inverted", "solarised")
    ordinary = drawn(6.0, 1.0, 0, rng.exponential(size=200)) | {name: rng.normal(-4, 1, 200) for name in names}
    joined = largest_surprise(ordinary)
    assert joined is not None
    assert [part.score.name for part in joined.components] == ["predictive_entropy", "distance", *names]
    likeness = {"inverted": np.array([-3.0, -1, 0, 2, 2]), "solarised": np.array([-2.0, 0, 1e-3, 5, 1])}
    usual = {name: np.repeat(ordinary[name].min(), 5) for name in ("predictive_entropy", "distance")}
    score, leading = joined.scored(usual | likeness)
    assert leading.tolist() == [0, 0, 3, 3, 2]
    least = math.log(2 / NAMED)
    assert score[2:] == pytest.approx([least + 1e-3, least + 5, least + 2], abs=2e-6)
    without = joined.scored(usual | dict.fromkeys(likeness, np.full(5, -9.0)))[0]
    assert score[:2] == pytest.approx(without[:2])


def test_held_out_scores_are_raised_by_little_where_they_crowd() -> None:
    """Next to the largest entropy and to no distance, a thousandth of a score would be all that tells."""
    singles = {
        "predictive_entropy": np.array([0.0, 1e-6, 0.2, 0.69, math.log(2)]),
        "distance": np.array([0.0, 1e-4, 1e-2, 1.0, 5.0]),
        "inverted": np.array([-4.0, -1.0, 0.0, 0.5, 3.0]),
    }
    found = {
        name: Raised(SCORES[name], "surprise", math.log(2)).scored(singles)[0] - own for name, own in singles.items()
    }
    assert found["predictive_entropy"] == pytest.approx([0, 1e-9, 2e-4, 3.147e-6, 0], abs=1e-9)
    assert found["distance"] == pytest.approx([1e-5, 1e-5, 1e-5, 1e-3, 5e-3])
    assert found["inverted"] == pytest.approx([4e-3, 1e-3, 0, 5e-4, 3e-3])


def test_examples_without_finite_feature_scores_are_left_out() -> None:
    features = {"distance": np.array([1.0, np.nan, np.inf, 2.0])}
    found = singles_of(Classification(3), HeldOutOutputs(np.eye(4, 3), np.ones((4, 3)), features))
    np.testing.assert_array_equal(found["distance"], [1.0, 2.0])
    assert found["predictive_entropy"].shape == (2,)


def test_no_row_that_is_finite_tells_nothing() -> None:
    features = {"distance": np.full(4, np.nan)}
    found = singles_of(Classification(3), HeldOutOutputs(np.eye(4, 3), np.full((4, 3), 1e300), features))
    assert {name: len(scores) for name, scores in found.items()} == {"predictive_entropy": 0, "distance": 0}
    assert largest_surprise(found) is None


def on_a_line(values: int | None, seed: int) -> tuple[Array, Array]:
    """Distances of 1,000 held-out and 4,000 later inputs of one feature, which takes `values` values, or any."""
    generator = torch.Generator().manual_seed(seed)
    weights = torch.randn(1, 50, generator=generator, dtype=torch.float64)

    def layers(n: int) -> list[Tensor]:
        place = torch.rand(n, 1, generator=generator, dtype=torch.float64)
        x = 3.4 * (place if values is None else torch.floor(place * values) / values) - 1.7
        return [x, torch.tanh(x @ weights)]

    fitted = FeatureVariance.fit(layers(4000), SCORE_FEATURES, with_lengths=True, inputs=0, generator=stream(0, 2))
    held_out, served = (to_numpy(fitted.of(layers(n))).squeeze(1) for n in (1000, 4000))
    return held_out, served


@pytest.mark.parametrize("values", [None, 41, 8])
def test_distances_that_lie_close_together_are_no_drift(values: int | None) -> None:
    """They differ by 1e-4: with a margin of a tenth of that, ordinary inputs would seem nearer than held-out ones."""
    for seed in range(3):
        held_out, served = on_a_line(values, seed)
        kept = Raised(SCORES["distance"], "distance", math.log(2)).scored({"distance": held_out})[0]
        rounded = served + 1e-7 * np.random.default_rng(seed).choice([-1, 1])  # as float32 does
        assert DriftTest(kept, 100, np.random.default_rng(seed)).observe(rounded) == 0
