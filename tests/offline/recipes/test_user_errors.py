"""Errors in a user's own code: their file, line and source line in a few lines; the whole traceback with --debug."""

from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

import demur.offline.recipes.run
from demur.cli import app
from demur.offline.recipes import user_errors
from tests.support.tiers import quick_among

RECIPE = """
import torch
from demur.offline import FitConfig

config = FitConfig(subnetwork_size=5, selection="random", false_reject_rate=0.1, prior_precision=3.0, device="cpu")

class Network(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(3, 2)

    def forward(self, x):
        return self.layer(x)

class Points(torch.utils.data.Dataset):
    def __len__(self):
        return 40

    def __getitem__(self, place):
        return torch.ones(3) * place, place % 2

def model():
    return Network()

def train_data():
    return torch.utils.data.DataLoader(Points(), batch_size=20)

calibration_data = train_data
"""
# Where the recipe breaks: what is replaced, by what, and the lines that must be shown.
WITH_WORKER = ("batch_size=20)", "batch_size=20, num_workers=1)")
BREAKS = {
    "import": ([("import torch\n", "import torch\nimport no_such_module\n")], "ModuleNotFoundError", "recipe.py:3\n"),
    "top level": ([("import torch\n", "import torch\n1 / 0\n")], "ZeroDivisionError", "recipe.py:3\n    1 / 0\n"),
    "syntax": ([("import torch\n", "import torch\n  x = (1,\n")], "IndentationError", "recipe.py:3\n    x = (1,\n"),
    "configuration": ([("subnetwork_size=5", "subnetwork_size=-5")], "subnetwork_size: found -5", "recipe.py:5\n"),
    "model": (
        [("return Network()", "raise KeyError('weights')")],
        "KeyError",
        "in model\n    raise KeyError('weights')",
    ),
    "a bare RuntimeError": ([("return Network()", "raise RuntimeError('no')")], "RuntimeError: no", "in model\n"),
    "forward": (
        [("self.layer(x)", "self.layer(x[:, :2])")],
        "shapes cannot be multiplied",
        "in forward\n    return self.layer(x[:, :2])",
    ),
    "data function": ([("Points(), b", "points(), b")], "NameError", "in train_data\n"),
    "dataset": ([("return torch.ones(3)", "return place['x']")], "TypeError", "in __getitem__\n    return place['x']"),
    "dataset in a worker": (
        [("return torch.ones(3)", "return place['x']"), WITH_WORKER],
        "TypeError: 'int' object is not subscriptable",
        "in __getitem__\n    return place['x']",
    ),
}


def write(folder: Path, changes: list[tuple[str, str]]) -> Path:
    text = RECIPE
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    (folder / "recipe.py").write_text(text)
    return folder / "recipe.py"


def fit(recipe: Path, *options: str) -> Result:
    return CliRunner().invoke(app, ["fit", str(recipe), "--out", str(recipe.parent / "bundle"), *options])


@pytest.mark.parametrize("where", BREAKS)
def test_an_error_in_the_recipe_says_where(tmp_path: Path, where: str) -> None:
    changes, error, place = BREAKS[where]
    result = fit(write(tmp_path, changes))
    assert result.exit_code == 2, result.output
    assert result.stderr.startswith("error: ")
    assert error in result.stderr.splitlines()[0]
    assert place in result.stderr
    assert result.stderr.count("\n") <= 8, result.stderr
    for line in result.stderr.splitlines():
        assert "site-packages" not in line
        assert "/offline/" not in line
        assert "Traceback" not in line


@pytest.mark.parametrize("where", quick_among(["model", "configuration", "dataset"], {"dataset"}))
def test_debug_shows_the_whole_traceback(tmp_path: Path, where: str) -> None:
    changes, _, _ = BREAKS[where]
    result = fit(write(tmp_path, changes), "--debug")
    assert result.exception is not None
    assert not isinstance(result.exception, SystemExit)


def test_a_long_recursion_is_cut(tmp_path: Path) -> None:
    deep = "def down(n):\n    return down(n + 1)\n\ndef model():\n    return down(0)"
    result = fit(write(tmp_path, [("def model():\n    return Network()", deep)]))
    assert result.stderr.startswith("error: RecursionError: ")
    assert "more calls" in result.stderr
    assert result.stderr.count("\n") < 25


def test_a_module_beside_the_recipe_is_the_users_code_too(tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text("def build():\n    return [][0]\n")
    result = fit(write(tmp_path, [("return Network()", "import beside; return beside.build()")]))
    assert result.stderr.startswith("error: IndexError: list index out of range\n")
    assert "recipe.py:23, in model\n" in result.stderr
    assert "beside.py:2, in build\n    return [][0]\n" in result.stderr


def test_a_bug_of_ours_keeps_its_traceback(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(demur.offline.recipes.run, "fit_bundle", broken)
    monkeypatch.setattr(user_errors, "OURS", (*user_errors.OURS, __file__))
    result = fit(write(tmp_path, []))
    assert isinstance(result.exception, RuntimeError)
    assert str(result.exception) == "a bug"
