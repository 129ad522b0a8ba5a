"""Scores of `python -m benchmarks scores` that Probity does not have, against their formulas, and their summary."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from benchmarks.experiments.score_candidates import (
    ALWAYS,
    BEYOND,
    LEAST,
    RIDGE,
    Head,
    candidates,
    joined,
    with_candidates,
)
from benchmarks.experiments.scores import summarise
from offline.laplace.scoring import largest_surprise
from service.maths.predictive import class_probabilities
from service.maths.score_outputs import ClassOutputs

Array = np.ndarray[Any, np.dtype[np.float64]]
CLASSES, FEATURES = 3, 6


@pytest.fixture
def head() -> Head:
    rng = np.random.default_rng(0)
    torch.manual_seed(0)
    classes = np.arange(60) % CLASSES
    return Head.of(nn.Linear(FEATURES, CLASSES), rng.gamma(2.0, size=(60, FEATURES)) + np.eye(6)[classes], classes)


@pytest.fixture
def h() -> Array:
    return np.random.default_rng(1).gamma(2.0, size=(20, FEATURES))


def one(head: Head, name: str, h: Array) -> Array:
    return candidates(head)[name](h)


def energy(logits: Array) -> Array:
    return np.asarray(-np.log(np.exp(logits).sum(axis=-1)))


def test_fdbd_is_the_mean_distance_to_the_boundaries_over_that_from_the_mean(head: Head, h: Array) -> None:
    for row, found in zip(h, one(head, "fDBD", h), strict=True):
        f = head.weight @ row + head.bias
        c = int(f.argmax())
        each = [(f[c] - f[k]) / np.linalg.norm(head.weight[c] - head.weight[k]) for k in range(CLASSES) if k != c]
        assert found == pytest.approx(-np.mean(each) / np.linalg.norm(row - head.features.mean(0)))


def test_relative_mahalanobis_is_the_difference_of_two_distances(head: Head, h: Array) -> None:
    means = np.stack([head.features[head.classes == k].mean(0) for k in range(CLASSES)])

    def inverse(centred: Array) -> Array:
        covariance = centred.T @ centred / len(centred)
        return np.linalg.inv(covariance + RIDGE * np.trace(covariance) / FEATURES * np.eye(FEATURES))

    own, whole = inverse(head.features - means[head.classes]), inverse(head.features - head.features.mean(0))
    for row, found in zip(h, one(head, "relative Mahalanobis", h), strict=True):
        near = min((row - m) @ own @ (row - m) for m in means)
        away = row - head.features.mean(0)
        assert found == pytest.approx(near - away @ whole @ away)


def test_core_sees_what_the_head_discards(head: Head, h: Array) -> None:
    """Along the rows of W only the energy changes; the residual of the mean of a class is the most usual there is."""
    rows = np.linalg.qr(head.weight.T)[0]

    def residual(x: Array) -> Array:
        rest = (x - head.features.mean(0)) @ (np.eye(FEATURES) - rows @ rows.T)
        return np.asarray(rest / np.maximum(np.linalg.norm(rest, axis=1, keepdims=True), LEAST))

    means = np.stack([residual(head.features)[head.classes == k].mean(0) for k in range(CLASSES)])
    means /= np.linalg.norm(means, axis=1, keepdims=True)
    parts = [
        [energy(x @ head.weight.T + head.bias), -np.max(residual(x) @ means.T, axis=1)] for x in (h, head.features)
    ]
    expected = sum((new - known.mean()) / known.std() for new, known in zip(*parts, strict=True))
    np.testing.assert_allclose(one(head, "CORE", h), expected)


def test_nci_adds_a_direction_and_a_length(head: Head, h: Array) -> None:
    def parts(x: Array) -> list[Array]:
        centred = x - head.features.mean(0)
        weights = head.weight[(x @ head.weight.T + head.bias).argmax(1)]
        return [-(centred * weights).sum(1) / np.linalg.norm(centred, axis=1), -np.abs(x).sum(1)]

    expected = sum(
        (new - known.mean()) / known.std() for new, known in zip(parts(h), parts(head.features), strict=True)
    )
    np.testing.assert_allclose(one(head, "NCI", h), expected)


def test_scale_is_the_energy_of_scaled_activations(head: Head, h: Array) -> None:
    for row, found in zip(h, one(head, "SCALE", h), strict=True):
        large = row[row >= np.percentile(row, 85)].sum()
        assert found == pytest.approx(energy(head.weight @ (row * math.exp(row.sum() / large)) + head.bias))


def test_a_part_that_is_joined_raises_the_default_and_only_beyond_where_it_counts(head: Head, h: Array) -> None:
    functions = {"fDBD": candidates(head)["fDBD"]}

    def outputs(x: Array) -> ClassOutputs:
        f = head.logits(x)
        variance = np.ones_like(f)
        features = {"distance": np.abs(x[:, 0])}
        made = ClassOutputs(f, variance, class_probabilities(f, variance, 1.0), 1.0, features)
        return with_candidates(made, functions, x)

    ordinary, foreign = outputs(head.features), outputs(20 * h)
    default = largest_surprise(ordinary)
    assert default is not None
    made = joined(default, ordinary, functions)
    assert list(made) == [f"{ALWAYS} fDBD", f"{BEYOND} fDBD"]
    base, always, beyond = (scoring.scored(foreign)[0] for scoring in (default, *made.values()))
    own = made[f"{ALWAYS} fDBD"].components[-1].distribution.surprise_at(foreign.features["fDBD"])
    np.testing.assert_allclose(always, np.maximum(base, own))
    np.testing.assert_allclose(beyond, np.maximum(base, np.where(own >= math.log(20), own, 0.0)))


def test_a_summary_takes_all_rotations_together_and_compares_with_the_default() -> None:
    def run(seed: int, gain: float) -> dict[str, Any]:
        sets = {
            name: {"surprise": {"auroc": 0.5, "fpr": 0.1}, "x": {"auroc": 0.5 + gain * weight, "fpr": 0.2}}
            for name, weight in (("rotation-15", 1), ("rotation-30", 3), ("noise", 1))
        }
        return {"network": "mnist", "seed": seed, "sets": sets}

    found = summarise([run(0, 0.1), run(1, 0.2)])["mnist"]["x"]
    assert set(found) == {"rotations", "noise"}
    assert found["rotations"] == pytest.approx(
        {"auroc": 0.8, "auroc_std": 0.1, "fpr": 0.2, "gain": 0.3, "gain_std": 0.1}
    )
