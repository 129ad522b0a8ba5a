"""`demur export`: one ONNX file from a bundle, without torch; errors in one line, exit code 2."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from demur.cli import app
from demur.service import Predictor
from tests.support.server import ROOT

BUNDLE = ROOT / "tests" / "golden" / "v1" / "bundle"
# Pretends that the packages named by the first argument are not installed.
WITHOUT = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in missing:
            raise ModuleNotFoundError(f"import of {name}")

missing = sys.argv[1].split(",")
sys.meta_path.insert(0, Missing())
import importlib.util
real = importlib.util.find_spec
importlib.util.find_spec = lambda name, package=None: None if name in missing else real(name, package)
from demur.__main__ import main
sys.argv = ["demur", *sys.argv[2:]]
main()
"""


def export(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["export", *map(str, arguments)])


def without(packages: str, *arguments: object) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-c", WITHOUT, packages, "export", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def refused(result: Result, *words: str) -> None:
    assert result.exit_code == 2, result.output
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1
    assert all(word in result.stderr for word in words), result.stderr


def test_it_shows_what_it_wrote_and_how_to_run_it(tmp_path: Path) -> None:
    out = tmp_path / "model[v1].onnx"
    result = export(BUNDLE, "--standalone", out)
    assert result.exit_code == 0, result.output
    lines = [re.split(r"  +", line, maxsplit=1) for line in result.stdout.splitlines()]
    assert ["wrote", f"{out} ({out.stat().st_size} bytes)"] in lines
    assert ["input inputs", "float32 (batch, 1, 8, 8)"] in lines
    assert ["output probabilities", "float64 (batch, 10)"] in lines
    assert ["output rejected", "bool (batch)"] in lines
    code = result.stdout.partition("Run it:\n")[2].replace("  ", "")
    inputs = np.random.default_rng(0).random((3, 1, 8, 8), np.float32)
    names = {"inputs": inputs}
    *setup, call = code.splitlines()
    exec("\n".join(setup), names)
    probabilities, rejected = eval(call, names)
    expected = Predictor.load(BUNDLE).predict(inputs)
    assert expected.probabilities is not None
    np.testing.assert_allclose(probabilities, expected.probabilities, rtol=1e-5)
    assert rejected.tolist() == expected.rejected.tolist()


def test_errors_are_one_line(tmp_path: Path) -> None:
    refused(export(tmp_path / "none", "--standalone", tmp_path / "model.onnx"), "none: no such folder")
    refused(export(tmp_path, "--standalone", tmp_path.with_suffix(".onnx")), "manifest.json: missing file")
    refused(export(BUNDLE, "--standalone", tmp_path), "exists and is no file")
    out = tmp_path / "model.onnx"
    out.write_text("precious")
    refused(export(BUNDLE, "--standalone", out), "exists", "--force")
    assert out.read_text() == "precious"
    assert export(BUNDLE, "--standalone", out, "--force").exit_code == 0
    assert out.read_bytes() != b"precious"


def test_the_format_must_be_named() -> None:
    result = export(BUNDLE)
    assert result.exit_code == 2
    assert "--standalone" in result.stderr


def test_it_needs_no_torch(tmp_path: Path) -> None:
    done = without("torch,sklearn,matplotlib,jinja2,httpx", BUNDLE, "--standalone", tmp_path / "model.onnx")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "model.onnx").is_file()


@pytest.mark.parametrize("package", ["onnx", "onnxscript", "demur.offline"])
def test_it_says_what_to_install(package: str, tmp_path: Path) -> None:
    done = without(package, BUNDLE, "--standalone", tmp_path / "model.onnx")
    assert done.returncode == 2
    assert done.stderr.startswith("error: this command needs")
    assert "in a checkout of Demur, pip install '.[offline]'" in done.stderr
    assert done.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []
