"""docs/evaluating.md: the examples for Ray Data, Dask and Spark give what `demur score` gives, to the bit."""

import importlib.util
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from demur.scoring.job import score_file
from demur.service.bundle import InputSpec
from demur.service.inference.predictor import Predictor
from tests.support.bundles import FEATURE_SPEC, TEXT_SPEC, tokenizer_json, write_linear
from tests.support.pages import blocks
from tests.support.server import ROOT, environment

pytestmark = pytest.mark.slow
BATCH = 256
COUNT = 4 * BATCH
TIMEOUT = 120
# Ray reports how it is used unless it is told not to; the tests use no network.
QUIET = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "disabled", "PYSPARK_PYTHON": sys.executable}


def block_with(word: str) -> str:
    page = ROOT / "docs" / "evaluating.md"
    (found,) = (text for language, text in blocks(page) if language == "python" and word in text)
    return found


def features(folder: Path) -> tuple[Path, pd.DataFrame, Path]:
    """A bundle, the columns of its inputs, and a file of them that `demur score` takes."""
    bundle = write_linear(folder / "bundles" / "patients", outputs=3, spec=FEATURE_SPEC).path
    names = list(FEATURE_SPEC.feature_names or ())
    frame = pd.DataFrame(np.random.default_rng(6).normal(size=(COUNT, len(names))).astype(np.float32), columns=names)
    frame.to_parquet(folder / "file.parquet")
    return bundle, frame, folder / "file.parquet"


def arrays(folder: Path) -> tuple[Path, pd.DataFrame, Path]:
    """Arrays in a column, which Parquet has as lists in lists."""
    bundle = write_linear(folder / "bundles" / "patients", outputs=3, spec=InputSpec((2, 3)), regression=True).path
    inputs = np.random.default_rng(6).normal(size=(COUNT, 2, 3)).astype(np.float32)
    np.save(folder / "file.npy", inputs)
    return bundle, pd.DataFrame({"inputs": inputs.tolist()}), folder / "file.npy"


def texts(folder: Path) -> tuple[Path, pd.DataFrame, Path]:
    bundle = write_linear(folder / "bundles" / "patients", outputs=3, spec=TEXT_SPEC, tokenizer=tokenizer_json()).path
    words = np.random.default_rng(6).choice(["a", "b", "other"], (COUNT, 3))
    column = [" ".join(each) for each in words]
    pd.DataFrame({"text": column}).to_parquet(folder / "file.parquet")
    return bundle, pd.DataFrame({"inputs": column}), folder / "file.parquet"


@pytest.fixture(params=[features, arrays, texts], ids=lambda make: make.__name__)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A folder with the bundle and the table of the page, in four row groups."""
    bundle, frame, file = request.param(tmp_path)
    ids = pd.Series([f"p{i}" for i in range(COUNT)])
    frame.assign(patient_id=ids).to_parquet(tmp_path / "patients.parquet", row_group_size=BATCH)
    score_file(Predictor.load(bundle, threads=1), file, tmp_path / "scored.parquet", batch_size=BATCH)
    rows = pd.read_parquet(tmp_path / "scored.parquet").drop(columns="row")
    rows.insert(0, "patient_id", ids)
    rows.to_parquet(tmp_path / "expected.parquet")
    return tmp_path


def run(place: Path, program: str) -> pd.DataFrame:
    """The rows that the program writes, in the order of the patients."""
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=place,
        env=environment(**QUIET),
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found = pd.read_parquet(place / "rows")
    return found.sort_values("patient_id", key=lambda ids: ids.str[1:].astype(int)).reset_index(drop=True)


def check(place: Path, found: pd.DataFrame) -> None:
    expected = pd.read_parquet(place / "expected.parquet")
    assert list(found.columns) == list(expected.columns)
    for name in expected:
        assert cells(found[name]) == cells(expected[name]), name


def cells(column: pd.Series) -> list[object]:
    return [list(cell) if isinstance(cell, np.ndarray) else cell for cell in column]


def test_ray_with_two_actors(place: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="ray-") as short:  # the names of sockets in it have a limit
        start = f"import ray\nray.init(num_cpus=3, include_dashboard=False, _temp_dir={short!r})\n"
        check(place, run(place, start + block_with("map_batches")))


def test_dask(place: Path) -> None:
    check(place, run(place, block_with("map_partitions")))


@pytest.mark.skipif(not (shutil.which("java") and importlib.util.find_spec("pyspark")), reason="needs pyspark and Java")
def test_spark(place: Path) -> None:
    columns = (
        "patient_id string, label string, probability double, `probability_class 0` double, `probability_class 1` "
        "double, `probability_class 2` double, score double, p_value double, rejected boolean, "
        "prediction_set array<string>"
    )
    start = f"from pyspark.sql import SparkSession\nspark = SparkSession.builder.getOrCreate()\ncolumns = {columns!r}\n"
    check(place, run(place, start + block_with("mapInPandas")))
