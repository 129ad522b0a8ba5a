"""Bundles of every kind, and the standalone models made from them."""

from pathlib import Path

import pytest

from tests.support.standalone import Exported, make_bundle


@pytest.fixture(scope="session")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("standalone")


@pytest.fixture
def exported(shelf: Path, request: pytest.FixtureRequest) -> Exported:
    """The bundle that the test's parameter names, exported once a session."""
    name: str = request.param
    folder = shelf / name
    if not folder.exists():
        folder.mkdir()
        Exported.of(make_bundle(name, folder / "bundle"), folder / "model.onnx")
    return Exported(folder / "bundle", folder / "model.onnx")
