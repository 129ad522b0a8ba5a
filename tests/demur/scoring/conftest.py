"""Bundles with outcomes, to score files with."""

from pathlib import Path

import pytest

from demur.service.bundle import InputSpec
from demur.service.inference.predictor import Predictor
from tests.support.bundles import FEATURE_SPEC, IMAGE_SPEC, write_linear
from tests.support.outcomes import keeping_outcomes


@pytest.fixture(scope="session")
def table(tmp_path_factory: pytest.TempPathFactory) -> Predictor:
    folder = tmp_path_factory.mktemp("table")
    source = write_linear(folder / "source", outputs=3, spec=FEATURE_SPEC, class_names=("x", "y,z", 'q"'))
    return Predictor.load(keeping_outcomes(source.path, folder / "bundle"), threads=1)


@pytest.fixture(scope="session")
def values(tmp_path_factory: pytest.TempPathFactory) -> Predictor:
    folder = tmp_path_factory.mktemp("values")
    source = write_linear(folder / "source", outputs=2, spec=InputSpec(shape=(3,)), regression=True)
    return Predictor.load(keeping_outcomes(source.path, folder / "bundle"), threads=1)


@pytest.fixture(scope="session")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Predictor:
    path = write_linear(tmp_path_factory.mktemp("pictures") / "bundle", outputs=3, spec=IMAGE_SPEC, size=8).path
    return Predictor.load(path, threads=1)


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out" / "rows.jsonl"
