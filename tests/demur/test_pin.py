"""`demur pin`: the version that answers requests which name none."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from demur.cli import app
from demur.pin import pin_version
from demur.service.models.versions_file import Pinned, read_versions
from tests.support.model_folders import bundle


def pin(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["pin", *map(str, arguments)])


@pytest.fixture
def models(tmp_path: Path) -> Path:
    for version in ("9", "10"):
        bundle(tmp_path / "a" / version, "a", version)
    bundle(tmp_path / "b", "b", "2")
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "manifest.json").write_text("{}")
    return tmp_path


def test_versions_are_pinned_and_released(models: Path) -> None:
    found = pin(models, "a", "9")
    assert (found.exit_code, found.output.strip()) == (0, "a: version 9 answers")
    assert pin(models, "b", "2").exit_code == 0
    assert read_versions(models) == {"a": Pinned("9"), "b": Pinned("2")}
    found = pin(models, "a", "--latest")
    assert (found.exit_code, found.output.strip()) == (0, "a: the latest version answers")
    assert read_versions(models) == {"b": Pinned("2")}


def test_a_canary_has_a_share(models: Path) -> None:
    bundle(models / "a" / "11", "a", "11")
    found = pin(models, "a", "9", "--canary", "10=0.1", "--canary", "11=0.05")
    assert (found.exit_code, found.output.strip()) == (
        0,
        "a: version 9 (version 10 for 10 %, version 11 for 5 %) answers",
    )
    assert read_versions(models) == {"a": Pinned("9", {"10": 0.1, "11": 0.05})}
    assert pin(models, "a", "9").exit_code == 0
    assert read_versions(models) == {"a": Pinned("9")}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["a", "8"], "found no version '8' of 'a', expected one that is there: 9, 10"),
        (["c", "1"], "found no model 'c', expected one that is there: 'a', 'b'"),
        (["a"], "found neither, expected a version or --latest"),
        (["a", "9", "--latest"], "found both, expected a version or --latest"),
        (["a", "9", "--canary", "8=0.1"], "found no version '8' of 'a'"),
        (["a", "9", "--canary", "10"], "--canary: found '10', expected VERSION=SHARE, such as 10=0.1"),
        (["a", "9", "--canary", "10=much"], "--canary: found '10=much', expected VERSION=SHARE"),
        (["a", "9", "--canary", "10=1.5"], "--canary: canary.10: Input should be less than 1"),
        (["a", "9", "--canary", "9=0.5"], "found the version '9' itself"),
        (["a", "--latest", "--canary", "10=0.1"], "--canary: found it beside --latest"),
        (["a", "--latest"], "found no pinned version of 'a'; pinned are: none"),
    ],
)
def test_what_is_refused(models: Path, arguments: list[str], words: str) -> None:
    found = pin(models, *arguments)
    assert found.exit_code == 2
    assert words in " ".join(found.output.split())
    assert not (models / "versions.json").exists()


def test_a_folder_that_is_none(tmp_path: Path) -> None:
    found = pin(tmp_path / "nowhere", "a", "9")
    assert found.exit_code == 2
    assert "nowhere" in found.output


def test_a_file_that_is_none_is_left_alone(models: Path) -> None:
    (models / "versions.json").write_text("mine")
    found = pin(models, "a", "9")
    assert found.exit_code == 2
    assert "expected an object" in " ".join(found.output.split())
    assert (models / "versions.json").read_text() == "mine"


def test_those_that_pin_at_the_same_time_lose_nothing(tmp_path: Path) -> None:
    names = [f"m{number}" for number in range(12)]
    for name in names:
        bundle(tmp_path / name, name, "1")
    with ThreadPoolExecutor(len(names)) as threads:
        list(threads.map(lambda name: pin_version(tmp_path, name, "1"), names))
    assert read_versions(tmp_path) == dict.fromkeys(names, Pinned("1"))
