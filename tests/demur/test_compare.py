"""`demur compare`: two bundles on the same inputs."""

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from demur.cli import app
from demur.service.bundle import InputSpec
from demur.service.inference.predictor import Predictor
from tests.support.bundles import FEATURE_SPEC, IMAGE_SPEC, write_linear
from tests.support.requests import image_file

INPUTS = np.random.default_rng(0).normal(size=(70, 4)).astype(np.float32)


def bundle(folder: Path, **changes: Any) -> Path:
    given: dict[str, Any] = {"outputs": 3, "spec": FEATURE_SPEC}
    return write_linear(folder, **(given | changes)).path


def compare(*arguments: object) -> Result:
    return CliRunner(env={"COLUMNS": "200"}).invoke(app, ["compare", *map(str, arguments)])


def figures(output: str) -> dict[str, float]:
    rows = re.findall(r"^(\S.*?) {2,}([0-9.]+)%? ", output, re.M)
    return {name.strip(): float(value) for name, value in rows}


def test_they_are_compared_input_by_input(tmp_path: Path) -> None:
    paths = bundle(tmp_path / "1"), bundle(tmp_path / "2", seed=3)
    np.save(tmp_path / "inputs.npy", INPUTS)
    done = compare(*paths, "--on", tmp_path / "inputs.npy", "--batch-size", "16")
    assert done.exit_code == 0, done.stderr
    found = figures(done.output)
    one, other = (Predictor.load(path).predict(INPUTS) for path in paths)
    assert one.probabilities is not None
    assert other.probabilities is not None
    changed = (one.probabilities.argmax(1) != other.probabilities.argmax(1)).mean()
    assert found["answered otherwise"] == pytest.approx(100 * changed, abs=0.01)
    assert found["accepted before, rejected now"] == pytest.approx(
        100 * (~one.rejected & other.rejected).mean(), abs=0.01
    )
    distance = np.abs(one.p_value - other.p_value).mean()
    assert found["mean distance of p-values"] == pytest.approx(distance, abs=1e-4)
    assert "70 inputs; 95 % intervals in brackets" in done.output


def test_a_bundle_and_itself(tmp_path: Path) -> None:
    np.save(tmp_path / "inputs.npy", INPUTS)
    path = bundle(tmp_path / "1")
    found = figures(compare(path, path, "--on", tmp_path / "inputs.npy").output)
    assert set(found.values()) == {0.0}


def test_each_reads_images_by_its_own_spec(tmp_path: Path) -> None:
    """A forgotten scaling shows."""
    assert IMAGE_SPEC.image is not None
    unscaled = dataclasses.replace(IMAGE_SPEC, image=dataclasses.replace(IMAGE_SPEC.image, scale=1.0))
    paths = bundle(tmp_path / "1", spec=IMAGE_SPEC), bundle(tmp_path / "2", spec=unscaled)
    (tmp_path / "images").mkdir()
    for place in range(8):
        (tmp_path / "images" / f"{place}.png").write_bytes(image_file())
    found = figures(compare(*paths, "--on", tmp_path / "images").output)
    assert found["mean distance of p-values"] > 0


def test_what_is_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "inputs.npy", INPUTS)
    one, other = bundle(tmp_path / "1"), bundle(tmp_path / "2", outputs=4)
    done = compare(one, other, "--on", tmp_path / "inputs.npy")
    assert done.exit_code == 2
    assert "expected bundles of one task, with the same classes" in " ".join(done.stderr.split())
    done = compare(one, one, "--on", tmp_path / "nowhere.npy")
    assert done.exit_code == 2
    assert "no such file" in done.stderr


def test_a_file_whose_first_line_may_be_data(tmp_path: Path) -> None:
    path = bundle(tmp_path / "1", spec=InputSpec(shape=(4,)))
    (tmp_path / "inputs.csv").write_text("0,1,2,3\n" + "1,2,3,4\n" * 3)
    assert compare(path, path, "--on", tmp_path / "inputs.csv").exit_code == 2
    for option, count in (("--header", 3), ("--no-header", 4)):
        done = compare(path, path, "--on", tmp_path / "inputs.csv", option)
        assert f"{count} inputs" in done.output, done.stderr
    (tmp_path / "one.csv").write_text("1,2,3,4\n")
    assert "inf" not in compare(path, path, "--on", tmp_path / "one.csv", "--no-header").output


def test_lines_of_several_models_are_the_same_for_both(tmp_path: Path) -> None:
    """Those of the first bundle's name: line by line, not the third of one beside the third of another."""
    first, second = bundle(tmp_path / "1", name="one"), bundle(tmp_path / "2", name="two")
    models = ["one", "two", "one"] * 10
    lines = [{"inputs": row.tolist(), "model": name} for row, name in zip(INPUTS, models, strict=False)]
    (tmp_path / "trail.jsonl").write_text("\n".join(map(json.dumps, lines)))
    done = compare(first, second, "--on", tmp_path / "trail.jsonl")
    assert done.exit_code == 0, done.stderr
    assert "20 inputs" in done.output
    assert set(figures(done.output).values()) == {0.0}


def test_a_line_that_one_takes_for_names_is_told(tmp_path: Path) -> None:
    named, unnamed = (dataclasses.replace(FEATURE_SPEC, feature_names=names) for names in (("5", "2", "3", "7"), None))
    first, second = bundle(tmp_path / "1", spec=named), bundle(tmp_path / "2", spec=unnamed)
    (tmp_path / "x.csv").write_text("5,2,3,7\n" + "1,2,3,4\n" * 5)
    done = compare(first, second, "--on", tmp_path / "x.csv")
    assert done.exit_code != 0
    assert "found 5 inputs of one bundle and 6 of the other, expected as many" in " ".join(done.stderr.split())
