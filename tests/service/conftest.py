"""Bundles, predictors and clients that the tests of the service share."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from demur.service.bundle import InputSpec
from demur.service.inference.predictor import Predictor
from tests.support.bundles import FEATURE_SPEC, IMAGE_SPEC, Synthetic, write_linear, write_tokens
from tests.support.client import Client, serving
from tests.support.tamper import copy_bundle


@pytest.fixture(scope="session")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the bundles stand that no test may change."""
    return tmp_path_factory.mktemp("bundles")


@pytest.fixture(scope="session")
def classification(shelf: Path) -> Synthetic:
    return write_linear(shelf / "classification", outputs=3, spec=FEATURE_SPEC)


@pytest.fixture(scope="session")
def images(shelf: Path) -> Synthetic:
    return write_linear(shelf / "images", outputs=3, spec=IMAGE_SPEC, size=8, seed=1, alpha=0.2)


@pytest.fixture(scope="session")
def regression(shelf: Path) -> Synthetic:
    spec = InputSpec(shape=(3,))
    return write_linear(shelf / "regression", outputs=2, spec=spec, regression=True, seed=2)


@pytest.fixture(scope="session")
def single_regression(shelf: Path) -> Synthetic:
    spec = InputSpec(shape=(3,))
    return write_linear(shelf / "single", outputs=1, spec=spec, size=3, regression=True, seed=3)


@pytest.fixture(scope="session")
def tokens(shelf: Path) -> Synthetic:
    return write_tokens(shelf / "tokens")


@pytest.fixture(scope="session", params=["classification", "images", "regression", "single_regression"])
def any_bundle(request: pytest.FixtureRequest) -> Synthetic:
    synthetic: Synthetic = request.getfixturevalue(request.param)
    return synthetic


@pytest.fixture
def folder(classification: Synthetic, tmp_path: Path) -> Path:
    """A copy of the classification bundle, to break."""
    return copy_bundle(classification.path, tmp_path / "bundle")


@pytest.fixture(scope="session")
def client(classification: Synthetic) -> Iterator[Client]:
    with serving(Predictor.load(classification.path)) as started:
        yield started


@pytest.fixture(scope="session")
def image_client(images: Synthetic) -> Iterator[Client]:
    with serving(Predictor.load(images.path)) as started:
        yield started


@pytest.fixture(scope="session")
def token_client(tokens: Synthetic) -> Iterator[Client]:
    with serving(Predictor.load(tokens.path)) as started:
        yield started


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """What finds no room in this process, in a queue or in memory, is refused soon."""
    for module in ("batching.room", "routes.direct"):
        monkeypatch.setattr(f"demur.service.{module}.PATIENCE_SECONDS", 0.01)
