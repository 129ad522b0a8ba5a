"""`python -m benchmarks robustness`: what each variation changes, on images of noise, and one row from end to end."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from benchmarks.core.settings import Settings
from benchmarks.datasets import mnist
from benchmarks.experiments import kept, robustness
from benchmarks.experiments.frontier.data import Problem
from benchmarks.experiments.frontier.run import SHIFTED
from benchmarks.experiments.robustness import VARIATIONS, Variation, constants, problem_of, summarise
from demur.offline.features import added_weights
from demur.offline.runtime.progress import silent

SIZES = {"train": 1000, "t10k": 400}


@pytest.fixture
def noise(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fashion-MNIST as noise with a bright row for each class; 100 images are for tests."""

    def labels(_: str, part: str) -> Tensor:
        return torch.arange(SIZES[part]) % 10

    def images(name: str, part: str) -> Tensor:
        x = 0.2 * torch.rand(SIZES[part], 1, 28, 28, generator=torch.Generator().manual_seed(len(name + part)))
        for place, k in enumerate(labels(name, part)):
            x[place, :, 2 * k : 2 * k + 3] += 0.7
        return x

    def load(_: str, count: int) -> Problem:
        x, y = mnist.normalise(images("fashion-mnist", "train")), labels("fashion-mnist", "train")
        tests = dict.fromkeys(("usual", *SHIFTED), x[:count])
        return Problem("fashion", (x, y), (x[:0], y[:0]), tests, y[:count], {"MNIST": -x[:count]})

    monkeypatch.setattr(mnist, "images", images)
    monkeypatch.setattr(mnist, "labels", labels)
    monkeypatch.setattr(robustness, "load", load)
    monkeypatch.setattr(robustness, "TEST", 100)
    monkeypatch.setattr(kept, "CACHE", Path("unused"))


def test_the_constants_are_as_they_were_afterwards() -> None:
    usual = added_weights.LINK_FEATURES, added_weights.SCORE_FEATURES
    with constants(VARIATIONS["features times 4"].features):
        found = added_weights.LINK_FEATURES, added_weights.SCORE_FEATURES
        assert [one.features for one in found] == [4 * one.features for one in usual]
        assert found[0] == dataclasses.replace(usual[0], features=found[0].features)
    with constants(VARIATIONS["length scale times 0.25"].features):
        assert added_weights.LINK_FEATURES.length_scale == usual[0].length_scale / 4
    with constants(None):
        assert usual == (added_weights.LINK_FEATURES, added_weights.SCORE_FEATURES)
    assert usual == (added_weights.LINK_FEATURES, added_weights.SCORE_FEATURES)


@pytest.mark.usefixtures("noise")
def test_examples_are_fewer_uneven_and_mislabelled() -> None:
    usual = problem_of(Variation(held_out=300), 0)
    assert (len(usual.held_out[1]), len(usual.train[1])) == (300, 1000)
    assert len(problem_of(Variation(held_out=50, train=70), 0).train[1]) == 70
    uneven = problem_of(Variation(held_out=300, imbalance=100), 0).train[1].bincount(minlength=10)
    assert uneven[0] == 100
    assert uneven[9] < 10
    assert uneven[4] > uneven[8]
    wrong = problem_of(Variation(held_out=300, wrong=0.1), 0)
    for (_, found), (_, right) in ((wrong.train, usual.train), (wrong.held_out, usual.held_out)):
        assert 0.02 < float((found != right).float().mean()) < 0.15
    assert torch.equal(wrong.classes, usual.classes)


@pytest.mark.usefixtures("noise")
def test_a_row_says_what_it_costs_and_gains(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(kept, "CACHE", tmp_path / "cache")
    found = robustness.run(Settings(True, 1, tmp_path, silent, tmp_path, ("default",)))
    (row,) = found["rows"]
    assert (row["label"], row["seeds"], row["labels_differ"]) == ("default", 1, 0)
    assert row["cost"] == pytest.approx(-row["gain"])  # the shifted images are the usual ones here
    assert 0 <= row["rejected_least"] <= 1
    assert row["cost_error"] is None


def test_errors_are_those_of_means_over_seeds() -> None:
    def run(label: str, seed: int, cost: float) -> dict[str, Any]:
        return {"label": label, "seed": seed, "cost": cost, "seconds": 1.0, "commit": "a", "scale": {}}

    first, second = summarise([run("default", 0, 1.0), run("default", 1, 3.0), run("head only", 0, 5.0)])
    assert first == {"label": "default", "seeds": 2, "cost": 2.0, "cost_error": pytest.approx(1.0)}
    assert second == {"label": "head only", "seeds": 1, "cost": 5.0, "cost_error": None}
