"""offline/recipes/run.py: what a recipe defines reaches the fit."""

from pathlib import Path
from typing import Any

import pytest
import torch

import demur.offline.recipes.run
from demur.offline.recipes.load import load_recipe
from demur.offline.recipes.look import looked_at
from demur.offline.recipes.run import fit_recipe
from demur.service.bundle import BundleError

RECIPE = """
import torch

def model():
    return torch.nn.Linear(2, 2)

def train_data():
    return torch.zeros(40, 2), torch.zeros(40, dtype=torch.int64)

calibration_data = train_data
"""
FOREIGN = """
def foreign_data():
    return torch.ones(5, 2), torch.zeros(5)
"""


@pytest.mark.parametrize(("text", "foreign"), [(RECIPE, False), (RECIPE + FOREIGN, True)])
def test_foreign_data(text: str, foreign: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, given = tmp_path / "recipe.py", dict[str, Any]()
    path.write_text(text)
    monkeypatch.setattr(demur.offline.recipes.run, "fit_bundle", lambda *_, **named: given.update(named))
    assert fit_recipe(path, tmp_path / "bundle", {})
    assert (given["foreign_loader"] is not None) is foreign
    if foreign:
        ((inputs, _),) = given["foreign_loader"].batches
        torch.testing.assert_close(inputs, torch.ones(5, 2))


def test_foreign_data_may_be_texts_alone(tmp_path: Path) -> None:
    path = tmp_path / "recipe.py"
    text = (Path(demur.__file__).parent / "templates" / "text.py").read_text()
    path.write_text(text + "\n\ndef foreign_data():\n    return ['a b', 'c', 'd']\n")
    recipe = load_recipe(path)
    found = looked_at(recipe, recipe.config, None, None, recipe.tokenizer)
    assert found["foreign_data"] == ["a b", "c", "d"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("calibration_data = lambda: (torch.zeros(3, 2), torch.zeros(2))", "found 3 inputs and 2 targets"),
        (
            "train_data = lambda: [(torch.full((3, 2), float('nan')), torch.zeros(3))]",
            "found NaN or infinity in the inputs",
        ),
        ("train_data = lambda: 3", r"train_data\(\): found int, expected an iterable"),
        ("class_names = 'ab'", "class_names: found str, expected a list of names"),
    ],
)
def test_data_are_looked_at_before_the_model_is_trained(change: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "recipe.py"
    path.write_text(RECIPE.replace("return torch.nn.Linear(2, 2)", "raise RuntimeError('trained')") + change + "\n")
    with pytest.raises((ValueError, TypeError), match=message):
        fit_recipe(path, tmp_path / "bundle", {})


def test_so_is_the_destination(tmp_path: Path) -> None:
    path, taken = tmp_path / "recipe.py", tmp_path / "file"
    path.write_text(RECIPE.replace("return torch.nn.Linear(2, 2)", "raise RuntimeError('trained')"))
    taken.write_text("mine")
    with pytest.raises(BundleError, match="exists and is not a folder"):
        fit_recipe(path, taken, {})


SHUFFLED = """
from torch.utils.data import DataLoader, TensorDataset

drawn = []

def model():
    drawn.append(float(torch.rand(1)))
    return torch.nn.Linear(2, 2)

def train_data():
    return DataLoader(TensorDataset(torch.zeros(8, 2), torch.zeros(8).long()), 2, shuffle=True)
"""


def test_looking_at_shuffled_data_changes_no_random_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "recipe.py"
    path.write_text(RECIPE + SHUFFLED)
    recipe = load_recipe(path)
    monkeypatch.setattr(demur.offline.recipes.run, "fit_bundle", lambda *_, **__: None)
    monkeypatch.setattr(demur.offline.recipes.run, "load_recipe", lambda _: recipe)
    torch.manual_seed(3)
    fit_recipe(path, tmp_path / "bundle", {})
    torch.manual_seed(3)
    assert vars(recipe.module)["drawn"] == [float(torch.rand(1))]
