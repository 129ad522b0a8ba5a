"""`versions.json`: read strictly, followed while the service runs, and never half of it."""

import asyncio
import json
import logging
import re
from pathlib import Path

import pytest

from demur.pin import pin_version
from demur.service.models.loading import load_named
from demur.service.models.versions_file import MOST_BYTES, Pinned, VersionsFileError, read_versions, write_versions
from demur.service.settings import Settings
from tests.support.broken_versions import BROKEN
from tests.support.metrics import metric
from tests.support.model_folders import Held, World, bundle, run
from tests.support.processes import wait_until
from tests.support.server import RUNNING, run_to_end, starting


def test_what_is_written_is_read(tmp_path: Path) -> None:
    assert read_versions(tmp_path) == {}
    write_versions(tmp_path, {"a": "9", "b": "1.0"})
    assert read_versions(tmp_path) == {"a": Pinned("9"), "b": Pinned("1.0")}
    assert json.loads((tmp_path / "versions.json").read_text()) == {"a": "9", "b": "1.0"}
    shared = {"a": Pinned("9", {"10": 0.1, "11": 0.25}), "b": Pinned("2")}
    write_versions(tmp_path, shared)
    assert read_versions(tmp_path) == shared
    assert [file.name for file in tmp_path.iterdir()] == ["versions.json"]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "found Invalid JSON"),
        (b"[]", "found Input should be"),
        (b'{"a": 9}', "found a: Input should be"),
        (b'{"a": {}}', "found a.version: Field required"),
        (b'{"a": {"version": "9", "share": 1}}', "found a.share: Unexpected"),
        (b'{"a": {"version": "9", "canary": {"10": 1.5}}}', "found a.canary.10: Input should be less than 1"),
        (b'{"a": {"version": "9", "canary": {"10": 0.6, "11": 0.6}}}', "found shares of 1.2 in all"),
        (b'{"a": {"version": "9", "canary": {"9": 0.1}}}', "found the version '9' itself"),
        (b'{"a": "9", "a": "10"}', "found the name 'a' twice in one object"),
        (b"\xff", "found Invalid JSON"),
        (b" " * (MOST_BYTES + 1), f"found more than {MOST_BYTES} bytes"),
    ],
)
def test_anything_else_is_refused_also_at_the_start(tmp_path: Path, content: bytes, words: str) -> None:
    (tmp_path / "versions.json").write_bytes(content)
    with pytest.raises(VersionsFileError, match=words):
        read_versions(tmp_path)
    with pytest.raises(VersionsFileError, match="demur pin"):
        load_named(Settings(models=tmp_path))


@pytest.mark.parametrize("kind", BROKEN)
def test_what_is_none_changes_nothing_and_a_metric_says_so(tmp_path: Path, kind: str) -> None:
    for version in ("9", "10"):
        bundle(tmp_path / "a" / version, "a", version)
    write_versions(tmp_path, {"a": "9"})

    async def test(world: World) -> None:
        await (await world.repository.begin())
        assert world.metric("demur_versions_unreadable") == 0
        (tmp_path / "versions.json").unlink()
        BROKEN[kind](tmp_path / "versions.json")
        for _ in range(3):
            await world.repository.refresh()
            assert world.store.find("a").version == "9"
            assert world.metric("demur_versions_unreadable") == 1
        pin_version(tmp_path, "a", "10")
        await world.repository.refresh()
        assert world.store.find("a").version == "10"
        assert world.metric("demur_versions_unreadable") == 0

    run(test, tmp_path)


@pytest.mark.parametrize("kind", BROKEN)
def test_nothing_starts_beside_what_is_none_and_the_remedy_is_one(tmp_path: Path, kind: str) -> None:
    for version in ("9", "10"):
        bundle(tmp_path / "a" / version, "a", version)
    BROKEN[kind](tmp_path / "versions.json")
    with pytest.raises(VersionsFileError, match=f"demur pin {re.escape(str(tmp_path))} NAME VERSION` writes it anew"):
        load_named(Settings(models=tmp_path))

    async def broken_since(world: World) -> None:
        with pytest.raises(VersionsFileError):
            await world.repository.begin()
        assert not world.store.answers

    run(broken_since, tmp_path)
    pin_version(tmp_path, "a", "9")
    assert load_named(Settings(models=tmp_path)) == []

    async def mended(world: World) -> None:
        await (await world.repository.begin())
        assert world.store.find("a").version == "9"

    run(mended, tmp_path)


def test_a_folder_that_is_away_counts_too(tmp_path: Path) -> None:
    models, away = tmp_path / "models", tmp_path / "away"
    bundle(models / "a", "a")

    async def test(world: World) -> None:
        await (await world.repository.begin())
        models.rename(away)
        with pytest.raises(FileNotFoundError):
            await world.repository.refresh()
        assert world.metric("demur_versions_unreadable") == 1
        away.rename(models)
        await world.repository.refresh()
        assert world.metric("demur_versions_unreadable") == 0

    run(test, models)


def test_a_service_goes_on_and_another_one_does_not_start(tmp_path: Path) -> None:
    for version in ("9", "10"):
        bundle(tmp_path / "a" / version, "a", version)
    write_versions(tmp_path, {"a": "9"})
    body = json.dumps({"inputs": [1, 2, 3, 4]}).encode()
    with starting("--models", str(tmp_path), DEMUR_WATCH_SECONDS="0.05") as server:
        server.port = int(server.wait_for(RUNNING)[1])
        server.wait_until_loaded()

        def unreadable() -> float:
            return metric(server.request("GET", "/metrics")[2].decode(), "demur_versions_unreadable")

        def answering() -> str:
            found: str = json.loads(server.request("POST", "/predict", body)[2])["model"]["version"]
            return found

        assert unreadable() == 0
        (tmp_path / "versions.json").write_text('{"a": "9')
        wait_until(lambda: unreadable() == 1)
        assert answering() == "9"
        status, _, message = run_to_end("--models", str(tmp_path), "--port", "0")
        assert (status, message.count("\n"), message.count(str(tmp_path / "versions.json"))) == (2, 1, 1)
        assert f"demur pin {tmp_path} NAME VERSION" in message
        pin_version(tmp_path, "a", "10")
        wait_until(lambda: answering() == "10")
        assert unreadable() == 0


def test_a_version_that_is_not_there_is_told_and_nothing_is_ready(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    bundle(tmp_path / "a", "a", "10")
    bundle(tmp_path / "b", "b", "1")
    write_versions(tmp_path, {"a": "9", "c": "1"})

    async def test(world: World) -> None:
        await (await world.repository.begin())
        told = "a is pinned to version 9, which is not loaded: requests that name no version get 404"
        assert caplog.text.count(told) == 1
        await world.repository.refresh()
        assert caplog.text.count(told) == 1
        for required in ("named", "all"):
            assert world.repository.missing(required, None) == ["a version 9, to which it is pinned"]
        assert world.repository.missing("any", None) == []
        assert world.store.answers
        write_versions(tmp_path, {"a": "9", "b": "2"})
        await world.repository.refresh()
        assert world.store.find("b").version == "1"  # it answered before
        write_versions(tmp_path, {"a": "10"})
        await world.repository.refresh()
        assert world.repository.missing("all", None) == []

    run(test, tmp_path)


def test_what_is_pinned_and_not_there_is_told_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Also where another version answers, so that nothing else shows it."""
    for version in ("9", "10"):
        bundle(tmp_path / "a" / version, "a", version)

    async def test(world: World) -> None:
        await (await world.repository.begin())
        assert "not loaded" not in caplog.text
        for pinned, said in (
            ({"a": "77"}, "a 77"),
            ({"A": "9", "a ": "9"}, "A 9, a  9"),
            ({"a": Pinned("9", {"77": 0.5, "10": 0.1})}, "a 77"),
        ):
            caplog.clear()
            write_versions(tmp_path, pinned)
            for _ in range(2):
                await world.repository.refresh()
            assert caplog.text.count(f"versions.json pins what is not loaded: {said};") == 1
            assert world.store.find("a").version in ("9", "10")
        caplog.clear()
        write_versions(tmp_path, {"a": "9"})
        await world.repository.refresh()
        assert "not loaded" not in caplog.text

    run(test, tmp_path)


def test_a_running_service_follows_it(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "demur")
    for version in ("9", "10"):
        bundle(tmp_path / "a" / version, "a", version)
    write_versions(tmp_path, {"a": "9"})

    async def test(world: World) -> None:
        await (await world.repository.begin())
        assert world.store.find("a").version == "9"
        assert "versions.json pins a to version 9" in caplog.text
        bundle(tmp_path / "a" / "11", "a", "11")
        await world.repository.refresh()
        assert world.store.find("a").version == "9"
        (tmp_path / "versions.json").write_text("half of")
        caplog.clear()
        for _ in range(2):
            await world.repository.refresh()
        assert caplog.text.count("the versions that answered before go on") == 1
        assert world.store.find("a").version == "9"
        write_versions(tmp_path, {"a": "10"})
        await world.repository.refresh()
        assert world.store.find("a").version == "10"
        (tmp_path / "versions.json").unlink()
        await world.repository.refresh()
        assert world.store.find("a").version == "11"

    run(test, tmp_path)


def test_no_other_version_answers_while_the_pinned_one_loads(tmp_path: Path) -> None:
    bundle(tmp_path / "a", "a", "10")
    bundle(tmp_path / "b", "a", "9")
    write_versions(tmp_path, {"a": "9"})

    async def test(world: World) -> None:
        held = Held(world, "b")
        loading = await world.repository.begin()
        await held.until_begun()
        while not world.serving():
            await asyncio.sleep(0)
        assert world.store.answering("a") is None
        assert "a" in world.repository.missing("named", "a")
        held.let_go.set()
        await loading
        assert world.store.find("a").version == "9"
        assert world.repository.missing("named", "a") == []

    run(test, tmp_path)
