"""How many threads a network is opened with, and how many batches of it are computed at once."""

from pathlib import Path

import pytest

from demur.service.bundle import BundleError
from demur.service.inference.graph import Graph
from demur.service.inference.predictor import Predictor
from demur.service.models import cpu_share, loading
from demur.service.models.cpu_share import all_threads, batches_at_once, share_of
from demur.service.models.loading import load_named
from demur.service.models.loading import load_predictor as load_tried
from demur.service.models.trials import Trials
from demur.service.settings import Settings
from tests.support.bundles import Synthetic


@pytest.fixture(autouse=True)
def eight_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu_share, "available_cpus", lambda: 8)


def load_predictor(folder: Path, settings: Settings) -> Predictor:
    with Trials(settings) as trials:
        return load_tried(folder, settings, trials)


@pytest.mark.parametrize(
    ("settings", "threads", "expected"),
    [
        ({}, 1, (8, 1, 8)),
        ({}, 8, (8, 8, 1)),
        ({"threads": 3}, 3, (8, 3, 2)),
        ({"threads": 99}, 99, (8, 8, 1)),
        ({"workers": 4}, 1, (2, 1, 2)),
        ({"workers": 16}, 1, (1, 1, 1)),
    ],
)
def test_processors_are_divided(settings: dict[str, int], threads: int, expected: tuple[int, int, int]) -> None:
    given = Settings(**settings)  # type: ignore[arg-type]
    assert (all_threads(given), share_of(given, threads), batches_at_once(given, threads)) == expected


@pytest.mark.parametrize(("long_seconds", "threads"), [(100.0, 1), (0.0, 8)])
def test_a_network_that_takes_long_has_all_threads(
    classification: Synthetic, monkeypatch: pytest.MonkeyPatch, long_seconds: float, threads: int
) -> None:
    monkeypatch.setattr(loading, "LONG_SECONDS", long_seconds)
    assert load_predictor(classification.path, Settings()).graph.threads == threads
    assert load_predictor(classification.path, Settings(threads=3)).graph.threads == 3
    assert load_predictor(classification.path, Settings(workers=99)).graph.threads == 1


def test_all_threads_is_this_workers_part() -> None:
    assert [all_threads(Settings(workers=workers)) for workers in (1, 2, 3, 99)] == [8, 4, 2, 1]


def test_an_example_is_timed_at_its_best(classification: Synthetic) -> None:
    predictor = Predictor.load(classification.path)
    assert not predictor.graph.takes_longer_than(100)
    assert predictor.graph.takes_longer_than(0)


@pytest.mark.parametrize(("seconds", "rows", "expected"), [(100.0, (8, 16), 16), (0.0, (8, 16), 0), (100.0, (), 0)])
def test_the_most_examples_that_are_quick(
    classification: Synthetic, monkeypatch: pytest.MonkeyPatch, seconds: float, rows: tuple[int, ...], expected: int
) -> None:
    monkeypatch.setattr(loading, "QUICK_SECONDS", seconds)
    monkeypatch.setattr(loading, "QUICK_ROWS", rows)
    assert load_predictor(classification.path, Settings()).quick_rows == expected


@pytest.mark.parametrize(("most", "expected"), [(0, 1), (1, 1), (5, 4), (16, 16), (1000, 40)])
def test_the_most_examples_of_a_short_batch(
    classification: Synthetic, monkeypatch: pytest.MonkeyPatch, most: int, expected: int
) -> None:
    def takes_longer_than(_: Graph, seconds: float, rows: int = 1, attempts: int = 3) -> bool:
        return rows > max(1, most)

    monkeypatch.setattr(Graph, "takes_longer_than", takes_longer_than)
    monkeypatch.setattr("demur.service.inference.graph.MAX_CHUNK_ROWS", 40)
    assert load_predictor(classification.path, Settings()).short_rows == expected


def test_a_slow_network_is_timed_with_one_example_alone(
    classification: Synthetic, monkeypatch: pytest.MonkeyPatch
) -> None:
    timed: list[int] = []

    def takes_longer_than(_: Graph, seconds: float, rows: int = 1, attempts: int = 3) -> bool:
        timed.append(rows * attempts)
        return True

    monkeypatch.setattr(Graph, "takes_longer_than", takes_longer_than)
    assert load_predictor(classification.path, Settings()).quick_rows == 0
    assert timed == [3]


def test_what_may_repeat_is_not_quick_whatever_the_clock_says(
    classification: Synthetic, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loading, "QUICK_SECONDS", 100.0)
    monkeypatch.setattr(loading, "may_repeat", lambda _: True)
    assert load_predictor(classification.path, Settings()).quick_rows == 0


def test_a_default_model_that_is_not_served_is_an_error(classification: Synthetic) -> None:
    name = classification.manifest.name
    assert load_named(Settings(bundle=(str(classification.path),), default_model=name))
    with pytest.raises(BundleError, match=f"DEMUR_DEFAULT_MODEL='other', expected one of {name}"):
        load_named(Settings(bundle=(str(classification.path),), default_model="other"))


def test_the_same_model_twice_is_an_error(classification: Synthetic) -> None:
    with pytest.raises(BundleError, match="name it once"):
        load_named(Settings(bundle=(str(classification.path),) * 2))


def test_a_models_folder_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="found no such folder"):
        load_named(Settings(models=tmp_path / "nothing"))


def test_the_one_bundle_is_served_under_a_name_of_the_operators(classification: Synthetic) -> None:
    own = Predictor.load(classification.path)
    settings = Settings(bundle=(str(classification.path),), model_name="numbers")
    (found,) = load_named(settings)
    assert (found.manifest.name, found.manifest.version, found.digest) == ("numbers", own.manifest.version, own.digest)
    again = load_predictor(classification.path, settings)  # as when it is replaced
    assert again.manifest.name == "numbers"
