"""Errors of a fit name what was given as whoever gave it knows it."""

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from demur import FitConfig
from demur.offline.recipes.from_files import recipe_of_files
from demur.offline.recipes.run import fit_recipe
from demur.offline.recipes.words import FILES, RECIPE, in_words

INNER = re.compile("train_loader|calibration_loader|foreign_loader")


@pytest.mark.parametrize("name", RECIPE)
def test_a_name_is_replaced_wherever_it_stands(name: str) -> None:
    expected = re.escape(f"a: {RECIPE[name]}, batch 1 of {RECIPE[name]}: my_{name}")
    with pytest.raises(TypeError, match=expected), in_words(RECIPE):
        raise TypeError(f"a: {name}, batch 1 of {name}: my_{name}")


def test_a_word_is_replaced_only_where_it_is_a_name() -> None:
    with pytest.raises(ValueError, match=r"^y: found more") as caught, in_words(FILES):
        raise ValueError("targets: found more targets than")
    assert str(caught.value) == "y: found more targets than"


def test_other_errors_stay_as_they_are() -> None:
    for error in (KeyError("train_loader"), ValueError(7), ValueError()):
        with pytest.raises(type(error)) as caught, in_words(RECIPE):
            raise error
        assert caught.value is error


@pytest.mark.filterwarnings("ignore:.isinstance.treespec:FutureWarning")
def test_files_are_named_by_their_options(tmp_path: Path) -> None:
    network = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 2)).eval()
    torch.onnx.export(network, (torch.zeros(2, 3),), tmp_path / "net.onnx", dynamo=True, verbose=False)
    draw = np.random.default_rng(0)
    for name, count in (("train", 100), ("few", 4)):
        np.savez(tmp_path / f"{name}.npz", x=draw.normal(size=(count, 3)).astype("f4"), y=draw.integers(0, 2, count))
    recipe = recipe_of_files(tmp_path / "net.onnx", tmp_path / "train.npz", tmp_path / "few.npz")
    with pytest.raises(ValueError, match=r"^--held-out: found 2 examples to set the threshold") as caught:
        fit_recipe(recipe, tmp_path / "bundle", FitConfig().model_dump(exclude_unset=True))
    assert not INNER.search(str(caught.value))
