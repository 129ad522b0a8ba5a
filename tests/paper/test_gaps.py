"""`python -m paper gaps` on made-up data: every method against the oracle, and the measures."""

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from paper.fitted import Problem
from paper.gaps import bundles, methods, quality, summary
from paper.gaps.data import GapSplit, load, split
from paper.gaps.methods import Method, Predictive
from paper.gaps.run import trained, with_earlier
from paper.regression_networks import Patience, Shape, without_biases
from paper.tables.data import Table
from paper.tables.network import UciFitted
from paper.tables.posterior import PRIOR_GRID
from tests import reference

SIGMA = 0.4


@pytest.fixture(scope="module")
def made_up() -> GapSplit:
    rng = np.random.default_rng(0)
    x = np.sort(rng.uniform(-3, 3, size=(300, 1)), axis=0)
    y = 7 + 3 * np.sin(2 * x) + 0.3 * rng.normal(size=(300, 1))
    return split("made up", x, y, np.concatenate([np.arange(100), np.arange(200, 300)]), np.arange(100, 200), 0)


@pytest.fixture(scope="module")
def fitted(made_up: GapSplit) -> UciFitted:
    network = without_biases(Shape(6, 1).network(1, 0))
    return UciFitted(network, Problem("made up", made_up.train.x, made_up.train.y, {}), 0, SIGMA)


def test_a_split_keeps_ordinary_rows_and_is_standardised_by_those_that_train(made_up: GapSplit) -> None:
    parts = made_up.train, made_up.validation, made_up.ordinary, made_up.gap
    assert [len(part.x) for part in parts] == [140, 40, 20, 100]
    np.testing.assert_allclose(made_up.train.x.mean(0), 0, atol=1e-12)
    np.testing.assert_allclose(made_up.train.y.std(), 1)
    low, high = made_up.gap.x.min(), made_up.gap.x.max()
    for part in parts[:3]:
        assert not ((part.x > low) & (part.x < high)).any()


@pytest.mark.skipif("DEMUR_DATA_DIR" not in os.environ, reason="needs the benchmark data")
def test_the_gap_of_a_toy_is_the_middle_third_of_its_rows() -> None:
    found = load("matern_1d", 0)
    low, high = found.gap.x.min(), found.gap.x.max()
    assert len(found.gap.x) == 400 - 2 * (400 // 3)
    assert not ((found.train.x > low) & (found.train.x < high)).any()


def test_the_papers_posterior_agrees_with_the_oracle(made_up: GapSplit, fitted: UciFitted) -> None:
    chosen = torch.tensor([7, 1, 4])
    method = methods.laplace(fitted, fitted.curvature(), chosen, made_up.validation)
    best = method.facts["prior_precision"]

    def predictive(x: np.ndarray[Any, Any], precision: float) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        means, jacobian = reference.full_jacobian(fitted.model, torch.as_tensor(x))
        _, training = reference.full_jacobian(fitted.model, torch.as_tensor(made_up.train.x))
        kept, used = [1, 4, 7], precision * 3 / fitted.total
        h = reference.posterior_precision(np.zeros((140, 1)), training[:, :, kept], "regression", used, SIGMA)
        return means[:, 0], reference.variance(jacobian[:, :, kept], h)[:, 0]

    found = method.predict(made_up.gap.x)
    mean, variance = predictive(made_up.gap.x, best)
    np.testing.assert_allclose(found.mean, mean, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found.std, np.sqrt(variance + SIGMA**2), rtol=1e-6)
    np.testing.assert_allclose(found.score, np.sqrt(variance), rtol=1e-6)

    def worth(precision: float) -> float:
        mean, variance = predictive(made_up.validation.x, precision)
        each = zip(mean, variance, made_up.validation.y, strict=True)
        return float(np.mean([reference.log_likelihood(m[None], v[None], y, SIGMA) for m, v, y in each]))

    assert best == max(PRIOR_GRID, key=worth)


def test_an_ensemble_has_the_moments_of_the_mixture(made_up: GapSplit) -> None:
    members = [
        UciFitted(Shape(6, 1).network(1, k), Problem("made up", made_up.train.x, made_up.train.y, {}), 0, 0.1 * (k + 1))
        for k in range(3)
    ]
    found = methods.ensemble(members).predict(made_up.gap.x)
    means = np.stack([methods.mean_of(member.model, made_up.gap.x) for member in members])
    second = np.mean([m**2 + member.sigma**2 for m, member in zip(means, members, strict=True)], axis=0)
    np.testing.assert_allclose(found.mean, means.mean(0))
    np.testing.assert_allclose(found.std, np.sqrt(second - means.mean(0) ** 2))


def test_the_likeliest_variance_is_none_where_residuals_do_not_grow_with_the_distance(made_up: GapSplit) -> None:
    network = Shape(20, 2).network(1, 0)
    flat = methods.mean_of(network, made_up.validation.x)[:, None] + np.tile([[0.5], [-0.5]], (20, 1))
    alike = Table(made_up.validation.x, flat)
    found = methods.likeliest_added_weights(network, made_up.train, alike, 0)
    assert found.facts["prior_variance"] == 0.0
    assert found.facts["sigma_noise"] == pytest.approx(0.5, rel=0.01)
    far = methods.likeliest_added_weights(network, made_up.train, made_up.validation, 0)
    assert far.facts["prior_variance"] >= 0.0


def test_a_threshold_rejects_at_most_five_per_cent_of_the_held_out_rows(made_up: GapSplit) -> None:
    method = Method(lambda x: Predictive(x[:, 0], x[:, 0], np.abs(x[:, 0])))
    found = methods.rejecting(method, made_up.validation)
    rejected = found.predict(made_up.validation.x).rejected
    assert rejected is not None
    assert rejected.mean() <= methods.FALSE_REJECT_RATE
    beyond = found.predict(np.array([[100.0]])).rejected
    assert beyond is not None
    assert beyond.all()


def test_quality_is_in_original_units_and_by_part(made_up: GapSplit) -> None:
    method = Method(lambda x: Predictive(np.zeros(len(x)), np.full(len(x), 2.0), np.zeros(len(x))))
    found = quality.quality(method, made_up, None)
    for part in quality.PARTS:
        targets = getattr(made_up, part).y
        each = [
            reference.log_likelihood(np.zeros(1), np.zeros(1), y * made_up.scale, 2.0 * made_up.scale) for y in targets
        ]
        assert found[part]["log_likelihood"] == pytest.approx(np.mean(each))
        assert found[part]["coverage"] == np.mean(np.abs(targets) <= 2 * quality.Z)
        assert found[part]["width"] == pytest.approx(4 * quality.Z)
        assert found[part]["rejected"] is None
    assert found["auroc"] is None


def test_a_bundle_gives_what_it_serves(made_up: GapSplit, tmp_path: Path) -> None:
    network = Shape(6, 1).network(1, 0)
    found = bundles.bundle(network, made_up, bundles.OPTIONS["added weights"], tmp_path / "b", 0)
    predicted = found.predict(made_up.gap.x)
    np.testing.assert_allclose(predicted.mean, methods.mean_of(network, made_up.gap.x), rtol=1e-4, atol=1e-5)
    assert (predicted.std >= found.facts["sigma_noise"] * (1 - 1e-6)).all()
    assert (predicted.std > 1.5 * found.facts["sigma_noise"]).mean() > 0.5  # what is in the gap is unusual
    assert predicted.rejected is not None


def test_summary_pairs_the_splits() -> None:
    def one(number: int, plain: float, other: float) -> dict[str, Any]:
        def parts(value: float, rejected: float | None) -> dict[str, Any]:
            part = {"log_likelihood": value, "coverage": 0.9, "width": 2.0, "squared_error": 1.0, "rejected": rejected}
            return {"ordinary": part, "gap": {**part, "squared_error": 3.0}, "auroc": None, "facts": {}}

        found = {summary.BASELINE: parts(plain, None), "x": parts(other, 0.1)}
        return {"problem": "p", "split": number, "methods": found}

    runs = [one(0, -1.0, -0.5), one(1, -2.0, -1.0)]
    found = summary.summarise(runs)["p"]
    assert found["squared_error_in_the_gap"]["mean"] == 3.0
    assert found["methods"]["x"]["gain"]["gap"]["mean"] == pytest.approx(0.75)
    assert found["methods"]["x"]["gain"]["gap"]["std"] == pytest.approx(np.std([0.5, 1.0], ddof=1))
    assert found["methods"][summary.BASELINE]["gap"]["rejected"] is None
    again = with_earlier(
        [{"problem": "b", "split": 0}], [{"problem": "a", "split": 1}, {"problem": "b", "split": 3}], ("a", "b")
    )
    assert [(run["problem"], run["split"]) for run in again] == [("a", 1), ("b", 0)]


def test_members_of_a_split_differ_and_are_kept(
    made_up: GapSplit, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from benchmarks.experiments import kept

    monkeypatch.setattr(kept, "CACHE", tmp_path)
    first, second = (trained(made_up, 0, member, Patience(1, 1)) for member in (0, 1))
    again = trained(made_up, 0, 0, Patience(1, 1))
    one, two, three = (methods.mean_of(found.model, made_up.gap.x) for found in (first, second, again))
    np.testing.assert_array_equal(one, three)
    assert not np.allclose(one, two)
