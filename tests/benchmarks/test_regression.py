"""`python -m benchmarks regression`: the tables, and the comparison on one that is here."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks.core.settings import Settings
from benchmarks.experiments import kept
from benchmarks.experiments.regression import data, run
from demur.offline.runtime.progress import silent

DIAMONDS = b'"carat","cut","color","clarity","depth","table","price","x","y","z"\n' + b"\n".join(
    b'0.%d,"Ideal","E","SI2",61.5,55,%d,3.95,3.98,2.43' % (i, 300 + i) for i in range(10, 60)
)


def test_diamonds_are_read_as_they_are_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data, "packaged", lambda _: DIAMONDS)
    x, y = data.diamonds(np.random.default_rng(0))
    assert (x.shape, y.shape) == ((50, 9), (50, 1))
    assert x[0].tolist() == [0.1, 4, 5, 1, 61.5, 55, 3.95, 3.98, 2.43]
    assert y[0] == 310


@pytest.mark.parametrize("name", ["diabetes", "by-column", "constant"])
def test_parts_have_no_row_in_common_and_the_units_of_the_training_data(name: str) -> None:
    table = data.load(name, 0)
    every = torch.cat([part[0] for part in (table.train, table.held_out, table.test)])
    assert len(torch.unique(every, dim=0)) == len(every)
    assert float(table.train[1].mean()) == pytest.approx(0, abs=1e-5)
    assert float(table.train[1].std()) == pytest.approx(1, abs=1e-2)
    assert len(table.held_out[0]) == (132 if name == "diabetes" else 500)
    assert len(data.load(name, 0, 40).held_out[0]) == 40


def test_coverage_by_fifths_of_the_prediction() -> None:
    mean = np.arange(10.0)[::-1, np.newaxis]
    low, high = mean - 1, mean + np.array([[1.0]] * 5 + [[3.0]] * 5)
    found = run.measured((low, high), mean, torch.as_tensor(mean + 2))
    assert (found["width"], found["coverage"]) == (3.0, 0.5)
    assert found["fifths"] == [1.0, 1.0, 0.5, 0.0, 0.0]


def test_the_methods_are_compared_on_the_same_rows(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(kept, "CACHE", tmp_path / "cache")
    (row,) = run.run(Settings(True, 1, tmp_path, silent, tmp_path, ("diabetes",)))["rows"]
    assert (row["seeds"], row["held_out"], row["test"]) == (1, 132, 132)
    likelihood = {name: found.get("log_likelihood") for name, found in row["methods"].items()}
    assert row["gain"] == pytest.approx(likelihood["default"] - likelihood["one noise"])
    assert ("MAPIE" in likelihood) == (importlib.util.find_spec("mapie") is not None)
    for found in row["methods"].values():
        assert 0.7 < found["coverage"] <= 1
        assert found["coverage"] == pytest.approx(np.mean(found["fifths"]), abs=0.01)
