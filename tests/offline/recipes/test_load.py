"""Recipes: plain Python files, loaded; what they lack or return wrongly is named with their path."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader

from probity.offline import FitConfig, InputSpec
from probity.offline.data.loaders import check_loader, checked_batches
from probity.offline.recipes.load import BATCH_SIZE, Recipe, RecipeError, as_batches, load_recipe

WHOLE = """
import torch
from probity.offline import FitConfig, InputSpec

config = FitConfig(name="tiny", seed=3)
class_names = ["no", "yes"]
input_spec = InputSpec(shape=(2,), feature_names=("a", "b"))

def model():
    return torch.nn.Linear(2, 2)

def train_data():
    return torch.zeros(3, 2), torch.zeros(3, dtype=torch.int64)

calibration_data = train_data
"""


def write(folder: Path, text: str, name: str = "recipe.py") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def recipe(folder: Path, text: str) -> Recipe:
    return load_recipe(write(folder, text))


def test_a_whole_recipe(tmp_path: Path) -> None:
    found = recipe(tmp_path, WHOLE)
    assert found.config == FitConfig(name="tiny", seed=3)
    assert found.class_names == ["no", "yes"]
    assert found.input_spec == InputSpec(shape=(2,), feature_names=("a", "b"))
    assert isinstance(found.model(), nn.Linear)
    assert sum(len(x) for x, _ in found.data("train_data")) == 3
    assert found.has("calibration_data")
    assert not found.has("ood_data")


def test_what_is_optional_has_a_default(tmp_path: Path) -> None:
    found = recipe(tmp_path, "")
    assert found.config == FitConfig()
    assert found.class_names is None
    assert found.input_spec is None


def test_optional_things_may_be_functions(tmp_path: Path) -> None:
    text = """
from probity.offline import FitConfig, InputSpec
def config(): return FitConfig(seed=7)
def class_names(): return ("a", "b")
def input_spec(): return InputSpec(shape=(4,))
"""
    found = recipe(tmp_path, text)
    assert found.config == FitConfig(seed=7)
    assert found.class_names == ("a", "b")
    assert found.input_spec == InputSpec(shape=(4,))


def test_nothing_runs_before_it_is_asked_for(tmp_path: Path) -> None:
    found = recipe(tmp_path, "def model(): raise KeyError('called')")
    with pytest.raises(KeyError, match="called"):
        found.model()


def test_the_recipe_is_found_by_worker_processes(tmp_path: Path) -> None:
    """A data loader's workers unpickle a recipe's classes by module name."""
    import pickle

    found = recipe(tmp_path, "class Data:\n    size = 3\n")
    assert pickle.loads(pickle.dumps(found.module.Data)) is found.module.Data


# --------------------------------------------------------------------------- what is wrong


@pytest.mark.parametrize("name", ["missing.py", "."])
def test_a_missing_file(tmp_path: Path, name: str) -> None:
    with pytest.raises(RecipeError, match=f"^{re.escape(str(tmp_path / name))}: no such file, expected a recipe"):
        load_recipe(tmp_path / name)


def test_a_file_that_is_not_python(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=r"recipe\.txt: found a file that is not Python, .* ends in \.py"):
        load_recipe(write(tmp_path, WHOLE, "recipe.txt"))


@pytest.mark.parametrize("text", ["", "model = 3\ntrain_data = [1]"], ids=["absent", "no functions"])
def test_a_missing_function_is_named(tmp_path: Path, text: str) -> None:
    found = recipe(tmp_path, text)
    for name, call in (("model", found.model), ("train_data", lambda: found.data("train_data"))):
        with pytest.raises(RecipeError, match=rf"recipe\.py: found no function {name}\(\), expected one"):
            call()


def test_a_model_of_another_type(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=r"model\(\) returned dict, expected a torch.nn.Module"):
        recipe(tmp_path, "def model(): return {}").model()


@pytest.mark.parametrize("text", ["config = {'seed': 3}", "def config(): return {'seed': 3}", "config = dict"])
def test_a_config_of_another_type(tmp_path: Path, text: str) -> None:
    with pytest.raises(RecipeError, match=r"recipe\.py: config: found \w+, expected a FitConfig"):
        _ = recipe(tmp_path, text).config


@pytest.mark.parametrize("text", ["input_spec = (1, 8, 8)", "def input_spec(): return {'shape': (2,)}"])
def test_an_input_spec_of_another_type(tmp_path: Path, text: str) -> None:
    with pytest.raises(RecipeError, match=r"recipe\.py: input_spec: found \w+, expected an InputSpec"):
        _ = recipe(tmp_path, text).input_spec


@pytest.mark.parametrize("text", ["class_names = 'ab'", "class_names = 3", "def class_names(): return {0: 'a'}"])
def test_class_names_of_another_type(tmp_path: Path, text: str) -> None:
    """A string is a sequence of strings too: "ab" would be taken for the classes "a" and "b"."""
    with pytest.raises(RecipeError, match=r"recipe\.py: class_names: found \w+, expected a list of names"):
        _ = recipe(tmp_path, text).class_names


# --------------------------------------------------------------------------- forms of data

INPUTS, TARGETS = np.arange(6.0).reshape(3, 2), np.array([0, 1, 1])


@pytest.mark.parametrize(
    "pair",
    [
        (INPUTS, TARGETS),
        (torch.as_tensor(INPUTS), torch.as_tensor(TARGETS)),
        (INPUTS.astype(np.float32), torch.as_tensor(TARGETS)),
        (INPUTS, TARGETS.astype(np.int8)),
    ],
    ids=["arrays", "tensors", "mixed", "small integers"],
)
def test_a_pair_becomes_batches_in_the_given_order(pair: Any) -> None:
    batches = as_batches(pair)
    check_loader(batches, "data")
    for _ in range(2):
        ((inputs, targets),) = checked_batches(batches, "data", torch.device("cpu"))
        assert inputs.tolist() == INPUTS.tolist()
        assert targets.tolist() == TARGETS.tolist()


def test_a_pair_is_cut_into_batches() -> None:
    count = 2 * BATCH_SIZE + 1
    batches = list(as_batches((torch.arange(count).reshape(count, 1), torch.arange(count))))
    assert [len(inputs) for inputs, _ in batches] == [BATCH_SIZE, BATCH_SIZE, 1]
    assert torch.equal(torch.cat([targets for _, targets in batches]), torch.arange(count))


def test_a_pair_of_unequal_lengths() -> None:
    with pytest.raises(RecipeError, match="found 3 inputs and 2 targets, expected as many of each"):
        as_batches((INPUTS, TARGETS[:2]))


@pytest.mark.parametrize(
    "batches",
    [
        [(torch.zeros(2, 2), torch.zeros(2))],
        DataLoader([(torch.zeros(2), torch.tensor(0))]),  # type: ignore[arg-type]
        [(INPUTS, TARGETS)],
    ],
    ids=["list", "loader", "list of arrays"],
)
def test_batches_pass_as_they_are(batches: Any) -> None:
    assert as_batches(batches) is batches


@pytest.mark.parametrize("name", ["digits", "diabetes"])
def test_the_examples_load(name: str) -> None:
    found = load_recipe(Path(__file__).parents[3] / "examples" / f"{name}.py")
    assert found.config.name == name
    assert found.input_spec is not None
    assert all(found.has(function) for function in ("model", "train_data", "calibration_data", "test_data", "ood_data"))
