"""`demur pin`: the version that answers requests which name none."""

import contextlib
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner, Result

from demur.cli import app
from demur.pin import pin_version
from demur.service.models.versions_file import Pinned, VersionsFileError, read_versions
from tests.support.broken_versions import BROKEN
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


@pytest.mark.parametrize("kind", BROKEN)
def test_what_is_none_is_replaced_and_kept(models: Path, kind: str) -> None:
    file = models / "versions.json"
    for kept in ("versions.json.broken", "versions.json.broken1"):
        BROKEN[kind](file)
        before = file.lstat()
        found = pin(models, "a", "9")
        assert found.exit_code == 0, found.output
        said, answer = found.output.strip().splitlines()
        assert said.startswith(f"{file}: ")
        assert said.endswith(f"written anew, without a version of any other model; what was there is {kept} now")
        assert answer == "a: version 9 answers"
        assert read_versions(models) == {"a": Pinned("9")}
        assert os.path.samestat(before, (models / kept).lstat())
        file.unlink()
    assert {path.name for path in models.iterdir()} == {
        "a",
        "b",
        "bad",
        "versions.json.broken",
        "versions.json.broken1",
    }


def test_the_latest_version_answers_where_none_can_be_read(models: Path) -> None:
    (models / "versions.json").write_text("mine")
    found = pin(models, "a", "--latest")
    assert found.exit_code == 0
    assert found.output.splitlines()[-1] == "a: the latest version answers"
    assert read_versions(models) == {}
    assert (models / "versions.json.broken").read_text() == "mine"


def test_what_is_refused_replaces_nothing(models: Path) -> None:
    (models / "versions.json").write_text("mine")
    assert pin(models, "a", "8").exit_code == 2
    assert (models / "versions.json").read_text() == "mine"
    assert not (models / "versions.json.broken").exists()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.binary() | st.text('{}":a9, ', max_size=20).map(str.encode))
def test_what_can_be_read_is_kept_and_nothing_else(models: Path, content: bytes) -> None:
    file, kept = models / "versions.json", models / "versions.json.broken"
    file.write_bytes(content)
    kept.unlink(missing_ok=True)
    before = None
    with contextlib.suppress(VersionsFileError):
        before = read_versions(models)
    pin_version(models, "a", "9")
    assert read_versions(models) == {**(before or {}), "a": Pinned("9")}
    assert kept.exists() == (before is None)
    assert before is not None or kept.read_bytes() == content


def test_who_reads_meanwhile_never_finds_that_nothing_is_pinned(models: Path) -> None:
    file, done, found = models / "versions.json", threading.Event(), list[object]()
    file.write_text("half")

    def read() -> None:
        while not done.is_set():
            with contextlib.suppress(VersionsFileError):
                found.append(read_versions(models))

    reader = threading.Thread(target=read)
    reader.start()
    for _ in range(50):
        pin_version(models, "a", "9")
        file.write_text("half")
    done.set()
    reader.join()
    assert {} not in found


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_others_may_read_keeps_its_pins(models: Path) -> None:
    """The service may be among them."""
    file = models / "versions.json"
    file.write_text('{"a": "9", "b": "2"}')
    file.chmod(0)
    with pytest.raises(ValueError, match="pin as a user who may read it"):
        pin_version(models, "a", "10")
    file.chmod(0o600)
    assert read_versions(models) == {"a": Pinned("9"), "b": Pinned("2")}


def test_those_that_pin_at_the_same_time_lose_nothing(tmp_path: Path) -> None:
    names = [f"m{number}" for number in range(12)]
    for name in names:
        bundle(tmp_path / name, name, "1")
    with ThreadPoolExecutor(len(names)) as threads:
        list(threads.map(lambda name: pin_version(tmp_path, name, "1"), names))
    assert read_versions(tmp_path) == dict.fromkeys(names, Pinned("1"))
