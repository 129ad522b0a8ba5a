"""Recipes: plain Python files, loaded; what they lack or return wrongly is named with their path."""

import re
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper
from torch import nn

from demur.offline import FitConfig, InputSpec
from demur.offline.recipes.load import Recipe, RecipeError, load_recipe
from tests.support.onnx_files import perceptron

SMALL = [helper.make_node("Gemm", ["h", "w"], ["out"])], {"w": np.ones((5, 3), np.float32)}
WHOLE = """
import torch
from demur.offline import FitConfig, InputSpec

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
    assert found.class_names == ("no", "yes")
    assert found.input_spec == InputSpec(shape=(2,), feature_names=("a", "b"))
    assert isinstance(found.model(), nn.Linear)
    assert len(found.data("train_data")[0]) == 3
    assert found.has("calibration_data")
    assert not found.has("foreign_data")


def test_what_is_optional_has_a_default(tmp_path: Path) -> None:
    found = recipe(tmp_path, "")
    assert found.config == FitConfig()
    assert found.class_names is None
    assert found.input_spec is None


def test_optional_things_may_be_functions(tmp_path: Path) -> None:
    text = """
from demur.offline import FitConfig, InputSpec
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


def test_a_missing_function_is_named(tmp_path: Path) -> None:
    found = recipe(tmp_path, "")
    for name, call in (("model", found.model), ("train_data", lambda: found.data("train_data"))):
        with pytest.raises(RecipeError, match=rf"recipe\.py: found no function {name}\(\), expected one"):
            call()


def test_the_value_itself_stands_for_a_function(tmp_path: Path) -> None:
    """A module is callable, and is not called."""
    found = recipe(tmp_path, "from torch import nn\nmodel = nn.Linear(4, 3)\ntrain_data = [1]")
    assert isinstance(found.model(), nn.Linear)
    assert found.data("train_data") == [1]


def test_the_path_of_a_model_is_looked_for_beside_the_recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    beside = recipe(tmp_path, "model = 'net.onnx'")
    onnx.save(perceptron(*SMALL), "net.onnx")
    assert isinstance(beside.model(), nn.Module)  # where there is none beside it, as ever
    (tmp_path / "net.onnx").write_bytes(b"no network")
    with pytest.raises(ValueError, match=re.escape(str(tmp_path / "net.onnx"))):
        beside.model()


def test_a_recipe_sees_arguments_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["demur", "fit", "--out", "x"])
    found = recipe(tmp_path, "import sys\ndef train_data():\n    return sys.argv\ntest_data = list(sys.argv)")
    assert found.data("train_data") == found.data("test_data") == [str(found.path)]
    assert sys.argv == ["demur", "fit", "--out", "x"]


def test_bytes_are_no_recipe(tmp_path: Path) -> None:
    (tmp_path / "recipe.py").write_bytes(b"x = 1\0")
    with pytest.raises(RecipeError, match=r"recipe\.py: found no Python source"):
        load_recipe(tmp_path / "recipe.py")


def test_a_model_of_another_type(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=r"model\(\): found dict, expected a trained network"):
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


@pytest.mark.parametrize("name", ["digits", "diabetes"])
def test_the_examples_load(name: str) -> None:
    found = load_recipe(Path(__file__).parents[3] / "examples" / f"{name}.py")
    assert found.config.name == name
    assert found.input_spec is not None
    assert all(
        found.has(function) for function in ("model", "train_data", "calibration_data", "test_data", "foreign_data")
    )


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("train_dat", "train_data"),
        ("ood_data", "foreign_data"),
        ("score_data", "foreign_data"),
        ("calibration", None),
        ("class_name", "class_names"),
        ("Config", "config"),
        ("conf", None),
        ("confg", "config"),
    ],
)
def test_a_name_that_is_nearly_right(tmp_path: Path, name: str, meant: str | None) -> None:
    path = tmp_path / "recipe.py"
    config = "from demur import FitConfig\nconfg = FitConfig()\n"
    path.write_text(config if name == "confg" else f"def {name}():\n    return 1\n")
    if meant is None:
        load_recipe(path)
        return
    with pytest.raises(RecipeError, match=rf"found {name}, which nothing reads; did you mean {meant}\?"):
        load_recipe(path)


def test_what_is_imported_or_beside_the_right_name_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "recipe.py"
    (tmp_path / "mine.py").write_text("def train_dat():\n    return 1\n")
    path.write_text("from mine import train_dat\n\ndef test_data():\n    return 1\n\ndef test_data2():\n    return 1\n")
    load_recipe(path)
