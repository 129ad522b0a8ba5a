"""service/models/repository.py: folders come, change, break and go; the old one serves until something better is."""

import asyncio
import contextlib
import logging
import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from service.bundle import CALIBRATION, MANIFEST, MODEL, POSTERIOR, BundleError
from service.inference.predictor import Predictor
from service.models.folder_record import FolderRecord
from tests.support.model_folders import INPUTS, TIMEOUT, World, bundle, run


def test_bundles_in_a_folder_are_found_one_or_two_deep_and_hidden_ones_are_not(tmp_path: Path) -> None:
    bundle(tmp_path / "a", "a")
    for version in ("1", "2"):
        bundle(tmp_path / "b" / version, "b", version)
    bundle(tmp_path / ".staging", "hidden")
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("no folder")

    async def test(world: World) -> None:
        await world.repository.refresh()
        assert set(world.serving()) == {"a 1", "b 1", "b 2"}
        assert {(one.name, one.version, one.state) for one in world.repository.index()} == {
            ("a", "1", "READY"),
            ("b", "1", "READY"),
            ("b", "2", "READY"),
        }

    run(test, tmp_path)


def test_a_replaced_bundle_is_swapped_in_and_an_untouched_one_is_not_read_again(tmp_path: Path) -> None:
    bundle(tmp_path / "a", "a")
    bundle(tmp_path / "b", "b")

    async def test(world: World) -> None:
        await world.repository.refresh()
        old = world.store.find("a")
        with old.in_use():
            bundle(tmp_path / "a", "a", seed=1)
            await world.repository.refresh()
            new = world.store.find("a")
            assert new is not old
            assert new.digest != old.digest
            answered = await old.predict(INPUTS)  # a request that began with the old model ends with it
            assert len(answered.result) == 1
        assert world.loads.count(tmp_path / "a") == 2
        assert world.loads.count(tmp_path / "b") == 1
        info = {"name": "a", "version": "1"}
        assert world.metric("probity_model_info", **info, digest=old.digest) is None
        assert world.metric("probity_model_info", **info, digest=new.digest) == 1

    run(test, tmp_path)


def test_the_same_bundle_written_again_is_not_loaded_again(tmp_path: Path) -> None:
    folder = bundle(tmp_path / "a", "a").path

    async def test(world: World) -> None:
        served = world.store.find("a")
        os.utime(folder / "manifest.json", (1, 1))
        await world.repository.refresh()
        assert world.loads == []
        assert world.store.find("a") is served

    run(test, None, (folder,))


@pytest.mark.parametrize("way", ["a damaged file", "a missing file", "no manifest at all"])
def test_a_bad_bundle_leaves_the_old_one_serving_and_says_so(tmp_path: Path, way: str) -> None:
    folder = bundle(tmp_path / "a", "a").path

    async def test(world: World) -> None:
        await world.repository.refresh()
        before = world.serving()
        bundle(folder, "a", seed=1)
        if way == "a damaged file":
            (folder / MODEL).write_bytes(b"changed")
        elif way == "a missing file":
            (folder / MODEL).unlink()
        else:
            (folder / "manifest.json").unlink()
        await world.repository.refresh()
        assert world.serving() == before
        if way != "no manifest at all":
            assert world.metric("probity_model_loads_total", model="a", outcome="failure") == 1
            assert world.metric("probity_model_stale", model="a") == 1
            (listed,) = world.repository.index()
            assert listed.state == "READY"
            assert MODEL in listed.reason
        shutil.rmtree(folder)
        bundle(folder, "a", seed=2)
        await world.repository.refresh()
        assert world.serving() != before
        assert world.metric("probity_model_stale", model="a") == 0

    run(test, tmp_path)


def test_a_bad_bundle_that_is_taken_back_is_forgotten(tmp_path: Path) -> None:
    folder = bundle(tmp_path / "a", "a").path
    good = (folder / "manifest.json").read_bytes()

    async def test(world: World) -> None:
        (folder / "manifest.json").write_bytes(b"{}")
        await world.repository.refresh()
        assert world.metric("probity_model_stale", model="a") == 1
        (folder / "manifest.json").write_bytes(good)
        await world.repository.refresh()
        assert world.metric("probity_model_stale", model="a") == 0
        assert world.repository.index()[0].reason == ""
        assert world.loads == [folder]

    run(test, None, (folder,))


def test_a_bad_bundle_is_tried_again_less_and_less_often_and_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = bundle(tmp_path / "a", "a").path
    (folder / MODEL).write_bytes(b"changed")

    async def test(world: World) -> None:
        attempts = []
        for _ in range(16):
            await world.repository.refresh()
            attempts.append(world.metric("probity_model_loads_total", model="a", outcome="failure"))
        assert attempts == [1, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4, 4, 4, 4, 4, 5]
        assert world.serving() == {}

    run(test, tmp_path)
    assert len([record for record in caplog.records if "not loaded" in record.getMessage()]) == 1


def test_what_was_refused_for_a_reason_outside_the_folder_is_taken_later(tmp_path: Path) -> None:
    folder = bundle(tmp_path / "a", "a").path
    trusted = False

    async def test(world: World) -> None:
        nonlocal trusted
        load = world.load

        def demanding(folder: Path) -> Predictor:
            if not trusted:
                raise BundleError(folder, "found no signature that is trusted", "sign it")
            return load(folder)

        world.load = demanding
        await world.repository.refresh()
        assert world.metric("probity_model_stale", model="a") == 1
        trusted = True
        await world.repository.refresh()
        assert set(world.serving()) == {"a 1"}
        assert world.metric("probity_model_stale", model="a") == 0

    run(test, tmp_path)
    assert folder.is_dir()


def test_a_bundle_that_is_copied_file_by_file_is_loaded_once_it_is_whole(tmp_path: Path) -> None:
    source = bundle(tmp_path / "source", "a").path
    models, target = tmp_path / "models", tmp_path / "models" / "a"
    target.mkdir(parents=True)

    async def test(world: World) -> None:
        for file in sorted(source.iterdir(), key=lambda file: file.name == "posterior.safetensors"):
            assert world.serving() == {}
            shutil.copy(file, target)
            await world.repository.refresh()
        assert set(world.serving()) == {"a 1"}

    run(test, models)


def test_a_bad_version_goes_by_the_name_of_its_model_and_is_forgotten_with_its_folder(tmp_path: Path) -> None:
    folder = tmp_path / "delta" / "2"
    folder.mkdir(parents=True)
    (folder / "manifest.json").write_text("nonsense")

    async def test(world: World) -> None:
        await world.repository.refresh()
        assert world.metric("probity_model_stale", model="delta") == 1
        assert [one.name for one in world.repository.index()] == ["delta"]
        shutil.rmtree(folder)
        await world.repository.refresh()
        await world.repository.refresh()
        assert world.metric("probity_model_stale", model="delta") == 0
        assert world.repository.index() == []

    run(test, tmp_path)


def test_while_the_models_folder_is_away_nothing_changes(tmp_path: Path) -> None:
    models = tmp_path / "models"
    bundle(models / "a", "a")

    async def test(world: World) -> None:
        await world.repository.refresh()
        models.rename(tmp_path / "away")
        for _ in range(4):
            with pytest.raises(FileNotFoundError):
                await world.repository.refresh()
        assert set(world.serving()) == {"a 1"}
        (tmp_path / "away").rename(models)
        await world.repository.refresh()
        assert set(world.serving()) == {"a 1"}

    run(test, models)


def test_the_series_of_what_is_served_no_longer_go(tmp_path: Path) -> None:
    folder = bundle(tmp_path / "a", "a").path

    async def test(world: World) -> None:
        await world.repository.refresh()
        await world.store.find("a").predict(INPUTS)
        for version in map(str, range(2, 6)):
            bundle(folder, "a", version)
            await world.repository.refresh()
            while world.repository._retiring:
                await asyncio.sleep(0)
        samples = [sample for family in world.registry.collect() for sample in family.samples]
        assert {sample.labels["version"] for sample in samples if "version" in sample.labels} == {"5"}

    run(test, tmp_path)


def test_a_bundle_that_is_gone_twice_in_a_row_is_unloaded(tmp_path: Path) -> None:
    bundle(tmp_path / "a", "a")
    bundle(tmp_path / "b", "b")

    async def test(world: World) -> None:
        await world.repository.refresh()
        shutil.rmtree(tmp_path / "a")
        await world.repository.refresh()
        assert set(world.serving()) == {"a 1", "b 1"}
        await world.repository.refresh()
        assert set(world.serving()) == {"b 1"}
        bundle(tmp_path / "a", "a")
        await world.repository.refresh()
        assert set(world.serving()) == {"a 1", "b 1"}

    run(test, tmp_path)


def test_a_bundle_named_by_hand_is_never_unloaded_because_it_is_gone(tmp_path: Path) -> None:
    folder = bundle(tmp_path / "a", "a").path

    async def test(world: World) -> None:
        shutil.rmtree(folder)
        for _ in range(3):
            await world.repository.refresh()
        assert set(world.serving()) == {"a 1"}

    run(test, None, (folder,))


@pytest.mark.parametrize("file", [MODEL, POSTERIOR, CALIBRATION])
@pytest.mark.parametrize("named", [True, False])
def test_a_file_that_is_changed_under_the_same_manifest_is_told(tmp_path: Path, file: str, named: bool) -> None:
    folder = bundle(tmp_path / "a", "a").path
    good = (folder / file).read_bytes()

    async def test(world: World) -> None:
        await world.repository.refresh()
        before, loads = world.serving(), len(world.loads)
        (folder / file).write_bytes(good[:-1] + bytes([good[-1] ^ 1]))
        await world.repository.refresh()
        assert world.metric("probity_model_stale", model="a") == 1
        assert world.metric("probity_model_loads_total", model="a", outcome="failure") == 1
        assert world.serving() == before
        assert file in world.repository.index()[0].reason
        (folder / file).write_bytes(good)
        await world.repository.refresh()
        assert world.metric("probity_model_stale", model="a") == 0
        assert world.repository.index()[0].reason == ""
        assert len(world.loads) == loads

    run(test, None if named else tmp_path, (folder,) if named else ())


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
        assert world.metric("probity_model_stale", model="a") == 0

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
        assert world.metric("probity_model_stale", model="a") == 1
        assert "regular file" in world.repository.index()[0].reason

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
        assert world.metric("probity_model_stale", model="a") == 1

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
        assert world.metric("probity_model_stale", model="\\udcff") == 1
        assert world.metric("probity_model_stale", model="a\\nERROR: forged") == 1
        assert all(one.reason.isprintable() for one in world.repository.index())
        b"".join(one.name.encode() for one in world.repository.index())

    with caplog.at_level(logging.INFO):
        run(test, tmp_path)
    assert all(record.getMessage().isprintable() for record in caplog.records if record.name == "probity")


def test_an_error_that_nobody_foresaw_holds_up_no_other(tmp_path: Path) -> None:
    for name in ("a", "b"):
        bundle(tmp_path / name, name)

    async def test(world: World) -> None:
        load = world.load

        def failing(folder: Path) -> Predictor:
            if folder.name == "a":
                raise MemoryError
            return load(folder)

        world.load = failing
        await world.repository.refresh()
        assert set(world.serving()) == {"b 1"}
        assert world.metric("probity_model_stale", model="a") == 1

    run(test, tmp_path)


class Held:
    """Loads that wait until they are let go."""

    def __init__(self, world: World, *names: str) -> None:
        self.load, self.names = world.load, names
        self.begun, self.let_go = threading.Semaphore(0), threading.Event()
        world.load = self

    def __call__(self, folder: Path) -> Predictor:
        if folder.name in self.names:
            self.begun.release()
            assert self.let_go.wait(TIMEOUT)
        return self.load(folder)

    async def until_begun(self) -> None:
        assert await asyncio.to_thread(self.begun.acquire, timeout=TIMEOUT)


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0)


def test_while_one_is_loaded_others_are_loaded_unloaded_and_answered(tmp_path: Path) -> None:
    for name in ("a", "slow"):
        bundle(tmp_path / name, name)

    async def test(world: World) -> None:
        held = Held(world, "slow")
        watching = asyncio.create_task(world.repository.watch(0.001))
        await held.until_begun()
        await until(lambda: set(world.serving()) == {"a 1"})
        bundle(tmp_path / "b", "b")
        await until(lambda: set(world.serving()) == {"a 1", "b 1"})
        await world.repository.unload("a")
        await world.repository.load("a")
        assert len((await world.store.find("a").predict(INPUTS)).result) == 1
        assert world.loads.count(tmp_path / "slow") == 0
        held.let_go.set()
        await until(lambda: set(world.serving()) == {"a 1", "b 1", "slow 1"})
        assert world.loads.count(tmp_path / "slow") == 1  # though it was looked at again and again
        watching.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await watching

    run(test, tmp_path)


def test_the_first_model_does_not_depend_on_which_is_loaded_first(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        bundle(tmp_path / name, name)

    async def test(world: World) -> None:
        held = Held(world, "a")
        refreshing = asyncio.create_task(world.repository.refresh())
        await until(lambda: len(world.loads) == 2)
        held.let_go.set()
        await refreshing
        assert [model.name for model in world.store] == ["a", "b", "c"]
        assert world.store.default == "a"

    run(test, tmp_path)


def test_a_bundle_that_is_removed_while_it_is_tried_is_gone_afterwards(tmp_path: Path) -> None:
    folder = bundle(tmp_path / "a", "a").path

    async def test(world: World) -> None:
        held = Held(world, "a")
        refreshing = asyncio.create_task(world.repository.refresh())
        await held.until_begun()
        shutil.rmtree(folder)
        for _ in range(3):
            await world.repository.refresh()
        held.let_go.set()
        await refreshing
        assert world.serving() == {}
        for _ in range(3):
            await world.repository.refresh()
        assert world.repository.index() == []
        assert world.metric("probity_model_stale", model="a") == 0

    run(test, tmp_path)


def test_what_is_unloaded_while_it_is_loaded_stays_unloaded(tmp_path: Path) -> None:
    bundle(tmp_path / "a", "a")

    async def test(world: World) -> None:
        await world.repository.refresh()
        bundle(tmp_path / "a", "a", seed=1)
        held = Held(world, "a")
        refreshing = asyncio.create_task(world.repository.refresh())
        await held.until_begun()
        await world.repository.unload("a")
        held.let_go.set()
        await refreshing
        assert world.serving() == {}
        await world.repository.load("a")
        assert set(world.serving()) == {"a 1"}

    run(test, tmp_path)


def test_what_takes_long_to_be_refused_is_not_tried_all_the_time(tmp_path: Path) -> None:
    record = FolderRecord(tmp_path, "a")
    for attempt, seconds in ((0.0, 60.0), (1200.0, 0.5)):
        assert record.refused("why", attempt, seconds) == (attempt == 0)
        due = [moment for moment in (attempt + 1.0 * i for i in range(1300)) if record.due(moment)]
        assert due[0] == pytest.approx(1200.0 if seconds > 1 else attempt + 1)
