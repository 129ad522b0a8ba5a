"""offline/recipes/run.py: what a recipe defines reaches the fit."""

from pathlib import Path
from typing import Any

import pytest
import torch

import probity.offline.recipes.run
from probity.offline.recipes.run import fit_recipe

RECIPE = """
import torch

def model():
    return torch.nn.Linear(2, 2)

def train_data():
    return torch.zeros(3, 2), torch.zeros(3, dtype=torch.int64)

calibration_data = train_data
"""
FOREIGN = """
def score_data():
    return torch.ones(5, 2), torch.zeros(5)
"""


@pytest.mark.parametrize(("text", "foreign"), [(RECIPE, False), (RECIPE + FOREIGN, True)])
def test_data_that_choose_the_score(text: str, foreign: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, given = tmp_path / "recipe.py", dict[str, Any]()
    path.write_text(text)
    monkeypatch.setattr(probity.offline.recipes.run, "fit_bundle", lambda *_, **named: given.update(named))
    assert fit_recipe(path, tmp_path / "bundle", {"score": "fused"})
    assert given["config"].score == "fused"
    assert (given["foreign_loader"] is not None) is foreign
    if foreign:
        inputs, _ = given["foreign_loader"]
        torch.testing.assert_close(inputs, torch.ones(5, 2))
