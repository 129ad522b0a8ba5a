"""service/models/repository.py: what editors leave, what is no regular file, and odd names."""

import logging
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from demur.service.bundle import MANIFEST, MODEL
from tests.support.model_folders import World, bundle, run


def lock_file(folder: Path) -> None:
    """As Emacs makes one beside a file that is edited: it leads nowhere."""
    (folder / ".#manifest.json").symlink_to("somebody@host.1234:1700000000")


def backup(folder: Path) -> None:
    (folder / "manifest.json~").write_text("older")


def link_for_the_manifest(folder: Path) -> None:
    (folder / MANIFEST).unlink()
    (folder / MANIFEST).symlink_to("nowhere")


def loop_for_the_manifest(folder: Path) -> None:
    (folder / MANIFEST).unlink()
    (folder / MANIFEST).symlink_to(MANIFEST)


def pipe_for_the_manifest(folder: Path) -> None:
    (folder / MANIFEST).unlink()
    os.mkfifo(folder / MANIFEST)


def folder_for_the_manifest(folder: Path) -> None:
    (folder / MANIFEST).unlink()
    (folder / MANIFEST).mkdir()


def pipe_for_the_model(folder: Path) -> None:
    (folder / MODEL).unlink()
    os.mkfifo(folder / MODEL)


def device_for_the_model(folder: Path) -> None:
    (folder / MODEL).unlink()
    (folder / MODEL).symlink_to("/dev/zero")


async def keeps_serving(world: World, change: Callable[[], None]) -> None:
    """The one model that is served before a change is still served after several scans."""
    await world.repository.refresh()
    before = world.serving()
    change()
    for _ in range(4):
        await world.repository.refresh()
    assert world.serving() == before
    assert len(before) == 1


@pytest.mark.parametrize("change", [lock_file, backup])
def test_what_an_editor_leaves_changes_nothing(tmp_path: Path, change: Callable[[Path], None]) -> None:
    folder = bundle(tmp_path / "a", "a").path

    async def test(world: World) -> None:
        await keeps_serving(world, lambda: change(folder))
        assert world.metric("demur_model_stale", model="a") == 0

    run(test, tmp_path)


@pytest.mark.parametrize(
    "change",
    [
        link_for_the_manifest,
        loop_for_the_manifest,
        pipe_for_the_manifest,
        folder_for_the_manifest,
        pipe_for_the_model,
        device_for_the_model,
    ],
)
def test_what_is_no_regular_file_leaves_the_old_one_serving(tmp_path: Path, change: Callable[[Path], None]) -> None:
    folder = bundle(tmp_path / "a", "a").path

    async def test(world: World) -> None:
        await keeps_serving(world, lambda: change(folder))
        assert world.metric("demur_model_stale", model="a") == 1
        reason = world.repository.records[folder].reason
        assert "regular file" in reason or "missing file" in reason

    run(test, tmp_path)


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="needs users")
def test_a_folder_that_may_not_be_looked_into_is_not_gone(tmp_path: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may look everywhere")
    folder = bundle(tmp_path / "a", "a").path
    bundle(tmp_path / "b", "b")

    async def test(world: World) -> None:
        await world.repository.refresh()
        folder.chmod(0)
        for _ in range(4):
            await world.repository.refresh()
        folder.chmod(0o755)
        assert set(world.serving()) == {"a 1", "b 1"}
        assert world.metric("demur_model_stale", model="a") == 1

    run(test, tmp_path)


def test_a_name_that_is_no_text_is_a_label_of_text(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for name in (b"\xff", b"a\nERROR: forged"):
        folder = Path(os.fsdecode(os.path.join(os.fsencode(tmp_path), name)))  # noqa: PTH118  bytes
        folder.mkdir()
        (folder / MANIFEST).write_text("nonsense")
    bundle(tmp_path / "good", "good\nERROR: forged", version="1\x1b[2J")

    async def test(world: World) -> None:
        await world.repository.refresh()
        assert set(world.serving()) == {"good\nERROR: forged 1\x1b[2J"}
        assert world.metric("demur_model_stale", model="\\udcff") == 1
        assert world.metric("demur_model_stale", model="a\\nERROR: forged") == 1
        assert all(one.reason.isprintable() for one in world.repository.records.values())
        b"".join(one.name.encode() for one in world.repository.records.values())

    with caplog.at_level(logging.INFO):
        run(test, tmp_path)
    assert all(record.getMessage().isprintable() for record in caplog.records if record.name == "demur")
