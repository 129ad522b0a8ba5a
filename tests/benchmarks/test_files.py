"""`python -m benchmarks files`: what is found in packages, and the comparison on a file that is here."""

import dataclasses
import subprocess
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import onnx.reference
import pytest
import torch
from onnx import helper
from sklearn.datasets import load_wine

from benchmarks.core.harness import MeasurementError
from benchmarks.core.settings import Settings
from benchmarks.experiments import kept
from benchmarks.experiments.files import networks, run, tables
from benchmarks.experiments.files.case import Case, case
from demur.offline.runtime.progress import silent
from docs import files_figures
from tests.support.onnx_files import perceptron

DRAW = np.random.default_rng(0)
CONSTANTS = {"w": DRAW.normal(size=(5, 3)).astype(np.float32)}
LINEAR = helper.make_node("MatMul", ["h", "w"], ["out"])


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(quick=False, threads=1, scratch=tmp_path, track=silent, out=tmp_path, rows=("packages",))


@pytest.fixture
def wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    """A package with a network, a file that is none, and a network whose outputs are no rows."""
    folded = helper.make_node("ReduceMean", ["h"], ["out"], keepdims=0)
    files = {
        "a/linear.onnx": perceptron([LINEAR], CONSTANTS).SerializeToString(),
        "a/mean.onnx": perceptron([folded], CONSTANTS).SerializeToString(),
        "a/readme.txt": b"no network",
    }

    def download(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        with zipfile.ZipFile(Path(command[command.index("--dest") + 1]) / "a-1.0-py3-none-any.whl", "w") as made:
            for name, content in files.items():
                made.writestr(name, content)
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(subprocess, "run", download)
    monkeypatch.setattr(run, "PACKAGES", ("a==1.0",))


@pytest.mark.usefixtures("wheel")
def test_every_file_of_a_package_is_looked_at(settings: Settings) -> None:
    found = run.run(settings)
    assert [row["file"] for row in found["packages"]] == ["a/linear.onnx", "a/mean.onnx"]
    linear, mean = found["packages"]
    assert any(line.startswith("last layer: linear") for line in linear["found"])
    assert "mean.onnx: found" in mean["refused"]
    assert "| a 1.0 | 1 |  | 1 |" in files_figures.files_packages(found)
    assert [row["end"] for row in files_figures.files_in_full(found)] == ["linear end", "refused"]


def wines() -> Case:
    """A perceptron of two columns with random weights."""
    x, y = load_wine(return_X_y=True)
    columns = ((x - x.mean(0)) / x.std(0))[:, [6, 9]].astype(np.float32)
    model = perceptron([LINEAR], CONSTANTS)
    return case(model.SerializeToString(), "a==1.0", "wines", np.tile(columns, (3, 1)), np.tile(y, 3))


def test_a_file_is_fitted_and_compared(settings: Settings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(kept, "CACHE", tmp_path / "kept")
    monkeypatch.setitem(run.FITTED, "magika v1", wines)
    (row,) = run.run(dataclasses.replace(settings, rows=("magika v1",)))["rows"]
    assert row["examples"] == [213, 160, 161]
    assert row["labels_differ"] == 0
    assert set(row["log_likelihood"]) == {"plain", "temperature", "default"}
    assert row["log_likelihood"]["temperature"] > row["log_likelihood"]["plain"]
    assert row["foreign"]["scaled-by-100"] == 1
    assert row["price"]["1"] > 1
    assert "| wines (a 1.0, opset 17) | linear |" in files_figures.files({"rows": [row]})


def test_bytes_are_those_of_both_ends_and_the_middle() -> None:
    found = networks.bytes_of(b" \n" + bytes(range(65, 75)) + b" ", 4, 2, 4)
    assert found == [65, 66, 67, 68, 69, 70, 71, 72, 73, 74]
    assert networks.bytes_of(b"AB", 4, 4, 4) == [65, 66, 256, 256, 256, 65, 66, 256, 256, 256, 65, 66]


def test_one_logit_is_one_of_two_classes(tmp_path: Path) -> None:
    nodes = [helper.make_node("MatMul", ["h", "w"], ["z"]), helper.make_node("Sigmoid", ["z"], ["out"])]
    model = perceptron(nodes, {"w": CONSTANTS["w"][:, :1]})
    model.graph.output[0].type.tensor_type.shape.dim[1].dim_value = 1
    x = torch.randn(20, 2)
    found = run.logits_of(model, dataclasses.replace(wines(), train=(x, torch.zeros(20))), x)
    expected: Any = onnx.reference.ReferenceEvaluator(model).run(None, {"x": x.numpy()})
    np.testing.assert_allclose(1 / (1 + np.exp(found[:, 0] - found[:, 1])), expected[0][:, 0], rtol=1e-4)


def test_what_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "CONVERTERS", ("numpy", "no_such_converter"))
    with pytest.raises(MeasurementError, match="no_such_converter: not installed, expected; pip install numpy"):
        tables.need_converters()
