"""`demur new`: recipes to begin with, which fit as they are."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from demur.cli import app
from demur.service.bundle import read_manifest
from tests.support.tiers import quick_among

TEMPLATES = ("images", "series", "table", "text")


def new(kind: str, path: Path, *options: str) -> tuple[int, str]:
    found = CliRunner().invoke(app, ["new", kind, str(path), *options])
    return found.exit_code, found.output


@pytest.mark.parametrize("kind", quick_among(TEMPLATES, {"table"}))
def test_a_new_recipe_fits_and_is_evaluated(kind: str, tmp_path: Path) -> None:
    code, output = new(kind, tmp_path / f"{kind}.py")
    assert code == 0, output
    assert f"demur fit {tmp_path / f'{kind}.py'} --out bundles/{kind}" in output
    runner, recipe, bundle = CliRunner(), str(tmp_path / f"{kind}.py"), str(tmp_path / "bundle")
    fitted = runner.invoke(app, ["fit", recipe, "--out", bundle])
    assert fitted.exit_code == 0, fitted.output
    assert read_manifest(tmp_path / "bundle")[0].name == kind
    doubts = ("of the calibration examples", "all calibration examples", "no better than a guess", "scale both")
    warnings = read_manifest(tmp_path / "bundle")[0].warnings
    assert not [text for text in warnings if any(doubt in text for doubt in doubts)]
    evaluated = runner.invoke(app, ["evaluate", bundle, recipe])
    assert evaluated.exit_code == 0, evaluated.output


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text("mine")
    code, output = new("table", path)
    assert code == 2
    assert "exists; give another name" in output
    assert path.read_text() == "mine"


def test_another_kind_is_refused(tmp_path: Path) -> None:
    code, output = new("tables", tmp_path / "recipe.py")
    assert code == 2
    assert "found 'tables' (did you mean 'table'?), expected images, series, table or text" in output


def test_a_recipe_that_is_not_there(tmp_path: Path) -> None:
    found = CliRunner().invoke(app, ["fit", str(tmp_path / "recipe.py"), "--out", str(tmp_path / "out")])
    assert found.exit_code == 2
    assert "no such file, expected a recipe; demur new TYPE" in found.output
