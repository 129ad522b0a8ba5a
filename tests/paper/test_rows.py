"""The rows of the paper's image experiments: what they depend on, and where networks and outcomes are kept."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks.core.harness import MeasurementError
from benchmarks.core.settings import Settings
from benchmarks.experiments import kept
from demur.offline.runtime.progress import silent
from paper.images import run
from paper.images.plot import STYLES
from paper.images.problems import Problem
from paper.images.rows import EVERYTHING, OURS, last_linear, rows, weights
from paper.images.run import FAST, FULL, QUICK
from paper.images.summary import (
    CONTROLS,
    PAPERS_RULE,
    PUBLISHED_ROWS,
)
from paper.images.trained import NETWORKS, Networks, Scale

SCALE = Scale("small CNN", 60, 8, 20, 50, 1, 1, 1)


def networks(scale: Scale = SCALE) -> Networks:
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(60, 1, 28, 28, generator=generator), torch.arange(60) % 10
    tests, foreign = {0: x[:8], 45: x[8:16]}, {"other": x[16:24]}
    problem = Problem(
        "mnist", "rotated_mnist", (x, y), (x[:20], y[:20]), tests, y[:8], foreign, y[:8] * 0, ("rotation",)
    )
    return Networks(problem, scale, 0, "test", silent)


@pytest.fixture(autouse=True)
def own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setattr(kept, "CACHE", tmp_path / "cache")
    return tmp_path / "cache"


def test_every_row_of_the_tables_is_made() -> None:
    made = rows(networks(), Path("unused"))
    assert {*PUBLISHED_ROWS.values(), *CONTROLS, PAPERS_RULE, *OURS} <= set(made)
    assert set(STYLES) == {*made, EVERYTHING}
    assert {scale.network for scales in (FULL, FAST, QUICK) for scale in scales.values()} <= set(NETWORKS)


def test_a_network_is_trained_once_and_again_for_more_epochs(own_cache: Path) -> None:
    first, again = networks().member(0), networks().member(0)
    assert torch.equal(first.state_dict()["head.weight"], again.state_dict()["head.weight"])
    longer = networks(replace(SCALE, epochs=2)).member(0)
    assert not torch.equal(first.state_dict()["head.weight"], longer.state_dict()["head.weight"])
    assert len(list(own_cache.glob("*.safetensors"))) == 2


def test_an_outcome_is_kept_and_made_again_where_its_settings_change() -> None:
    found = run.one_seed(networks(), ("MAP", "MAP, tempered within the budget"))
    assert found["MAP"]["price"] > 0
    assert found["MAP"]["scale"]["settings"] == {}
    assert run.one_seed(networks(), ("MAP",))["MAP"] == found["MAP"]
    other = networks(replace(SCALE, size=40))
    assert run.one_seed(other, ("MAP",))["MAP"]["scale"]["size"] == 40


def test_an_unknown_row_is_refused() -> None:
    with pytest.raises(MeasurementError, match=r"--rows: found nothing, expected some of IVON, MAP, MAP tempered"):
        run.one_seed(networks(), ("nothing",))


def test_rows_are_named_without_their_commas() -> None:
    assert list(run.one_seed(networks(), (" MAP tempered within the budget",))) == ["MAP, tempered within the budget"]


def test_the_last_layer_has_the_weights_of_the_head() -> None:
    network = NETWORKS["narrow ResNet"](0.0)
    assert weights(last_linear(network)) == 650 < weights(network)


def test_rows_measured_again_stand_beside_the_others() -> None:
    earlier = [{"seed": 0, "methods": {"b": 1, "c": 2}}, {"seed": 1, "methods": {"c": 3}}]
    found = kept.with_earlier([{"seed": 0, "methods": {"c": 4, "a": 5}}], earlier, ["a", "b", "c"])
    assert found == [{"seed": 0, "methods": {"a": 5, "b": 1, "c": 4}}, {"seed": 1, "methods": {"c": 3}}]
    assert list(found[0]["methods"]) == ["a", "b", "c"]


def test_rows_of_another_size_are_not_mixed(tmp_path: Path) -> None:
    last = {"scale": {"test": 8, "train": 7}, "runs": []}
    (tmp_path / "mnist_fast.json").write_text(json.dumps(last))
    with pytest.raises(MeasurementError, match="--rows: found a last result with another test and train, expected"):
        run.run("mnist", settings(tmp_path, fast=True, rows=("MAP",)))


def settings(tmp_path: Path, **options: Any) -> Settings:
    return Settings(False, 1, tmp_path, silent, tmp_path, **options)


def test_a_fast_run_has_a_size_of_its_own_and_a_quick_one_goes_before_it(tmp_path: Path) -> None:
    assert settings(tmp_path).scale(1, 2, 3) == 1
    assert settings(tmp_path, fast=True).scale(1, 2, 3) == 2
    assert replace(settings(tmp_path, fast=True), quick=True).scale(1, 2, 3) == 3


def test_rows_measured_again_find_the_last_result_of_their_own_size(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text('{"runs": ["full"]}')
    (tmp_path / "x_fast.json").write_text('{"runs": ["fast"]}')
    assert settings(tmp_path, rows=("a",)).earlier("x", "runs") == ["full"]
    assert settings(tmp_path, rows=("a",), fast=True).earlier("x", "runs") == ["fast"]
    assert settings(tmp_path, rows=("a",)).earlier("absent", "runs") is None
    assert settings(tmp_path).earlier("x", "runs") is None
