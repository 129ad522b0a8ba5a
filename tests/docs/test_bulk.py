"""docs/evaluating.md: the examples for Ray Data, Dask and Spark give what `demur score` gives, to the bit."""

import importlib.util
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
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


KINDS = (features, arrays, texts)


def fill(make: Callable[[Path], tuple[Path, pd.DataFrame, Path]], folder: Path) -> None:
    """The folder with the bundle and the table of the page, in four row groups."""
    bundle, frame, file = make(folder)
    ids = pd.Series([f"p{i}" for i in range(COUNT)])
    frame.assign(patient_id=ids).to_parquet(folder / "patients.parquet", row_group_size=BATCH)
    score_file(Predictor.load(bundle, threads=1), file, folder / "scored.parquet", batch_size=BATCH)
    rows = pd.read_parquet(folder / "scored.parquet").drop(columns="row")
    rows.insert(0, "patient_id", ids)
    rows.to_parquet(folder / "expected.parquet")


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """A folder for each kind of inputs, which has its name."""
    base = tmp_path_factory.mktemp("tables")
    for make in KINDS:
        folder = base / make.__name__
        folder.mkdir()
        fill(make, folder)
    return [base / make.__name__ for make in KINDS]


@pytest.fixture
def places(tables: list[Path], tmp_path: Path) -> list[Path]:
    """A copy of each folder."""
    return [shutil.copytree(table, tmp_path / table.name) for table in tables]


# Starting an engine takes longer than all three tables. A traceback names the table as its file.
EACH = """
import json, sys, traceback
failed = False
for table, block in json.loads(sys.argv[1]):
    try:
        exec(compile(block, table, "exec"), dict(globals()))
    except Exception:
        print("the block for the table of", table, file=sys.stderr)
        traceback.print_exc()
        failed = True
sys.exit(failed)
"""


def absolute(block: str, place: Path) -> str:
    """The block with this folder's paths: an engine keeps the folder that it was started in."""
    for name in ("patients.parquet", "bundles/patients", "rows"):
        assert block.count(f'"{name}"') == 1
        block = block.replace(f'"{name}"', repr(str(place / name)))
    return block


def check(places: list[Path], start: str, block: str) -> None:
    """Run the block for every table: as it stands in the first one's folder, with paths for the others."""
    first, *others = places
    programs = [(first.name, block), *((place.name, absolute(block, place)) for place in others)]
    done = subprocess.run(
        [sys.executable, "-c", start + EACH, json.dumps(programs)],
        cwd=first,
        env=environment(**QUIET),
        capture_output=True,
        text=True,
        timeout=TIMEOUT * len(places),
    )
    assert done.returncode == 0, done.stderr[-9000:]
    assert [difference for place in places for difference in differences(place)] == []


def differences(place: Path) -> list[str]:
    """Which columns are not what `demur score` gives, of the rows in the order of the patients."""
    found, expected = pd.read_parquet(place / "rows"), pd.read_parquet(place / "expected.parquet")
    found = found.sort_values("patient_id", key=lambda ids: ids.str[1:].astype(int)).reset_index(drop=True)
    if list(found.columns) != list(expected.columns):
        return [f"{place.name}: the columns {list(found.columns)}"]
    return [f"{place.name}: {name}" for name in expected if cells(found[name]) != cells(expected[name])]


def cells(column: pd.Series) -> list[object]:
    return [list(cell) if isinstance(cell, np.ndarray) else cell for cell in column]


def test_ray_with_two_actors(places: list[Path]) -> None:
    with tempfile.TemporaryDirectory(prefix="ray-") as short:  # the names of sockets in it have a limit
        start = f"import ray\nray.init(num_cpus=3, include_dashboard=False, _temp_dir={short!r})\n"
        check(places, start, block_with("map_batches"))


def test_dask(places: list[Path]) -> None:
    check(places, "", block_with("map_partitions"))


@pytest.mark.skipif(not (shutil.which("java") and importlib.util.find_spec("pyspark")), reason="needs pyspark and Java")
@pytest.mark.parametrize("kind", [make.__name__ for make in KINDS])
def test_spark(places: list[Path], kind: str) -> None:
    columns = (
        "patient_id string, label string, probability double, `probability_class 0` double, `probability_class 1` "
        "double, `probability_class 2` double, score double, p_value double, rejected boolean, "
        "prediction_set array<string>"
    )
    start = f"from pyspark.sql import SparkSession\nspark = SparkSession.builder.getOrCreate()\ncolumns = {columns!r}\n"
    check([place for place in places if place.name == kind], start, block_with("mapInPandas"))
