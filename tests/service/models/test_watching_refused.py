"""service/models/repository.py: a bundle that is refused leaves the old one serving, is told, and tried again."""

import shutil
from pathlib import Path

import pytest

from demur.service.bundle import CALIBRATION, MANIFEST, MODEL, POSTERIOR, BundleError
from demur.service.inference.predictor import Predictor
from demur.service.models.folder_record import FolderRecord
from tests.support.model_folders import World, bundle, run


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
            assert world.metric("demur_model_loads_total", model="a", outcome="failure") == 1
            assert world.metric("demur_model_stale", model="a") == 1
            (record,) = world.repository.records.values()
            assert MODEL in record.reason
        shutil.rmtree(folder)
        bundle(folder, "a", seed=2)
        await world.repository.refresh()
        assert world.serving() != before
        assert world.metric("demur_model_stale", model="a") == 0

    run(test, tmp_path)


def test_a_bad_bundle_that_is_taken_back_is_forgotten(tmp_path: Path) -> None:
    folder = bundle(tmp_path / "a", "a").path
    good = (folder / "manifest.json").read_bytes()

    async def test(world: World) -> None:
        (folder / "manifest.json").write_bytes(b"{}")
        await world.repository.refresh()
        assert world.metric("demur_model_stale", model="a") == 1
        (folder / "manifest.json").write_bytes(good)
        await world.repository.refresh()
        assert world.metric("demur_model_stale", model="a") == 0
        assert world.repository.records[folder].reason == ""
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
            attempts.append(world.metric("demur_model_loads_total", model="a", outcome="failure"))
        assert attempts == [1, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4, 4, 4, 4, 4, 5]
        assert world.serving() == {}

    run(test, tmp_path)
    assert len([record for record in caplog.records if "not loaded" in record.getMessage()]) == 1


def test_a_model_is_stale_also_where_an_older_version_is_loaded_later(tmp_path: Path) -> None:
    (tmp_path / "a" / "10").mkdir(parents=True)
    (tmp_path / "a" / "10" / MANIFEST).write_text("{}")
    bundle(tmp_path / "a" / "9", "a", "9")

    async def test(world: World) -> None:
        await world.repository.refresh()
        assert world.serving()
        assert world.metric("demur_model_stale", model="a") == 1

    run(test, tmp_path)


def test_a_model_is_stale_as_long_as_one_of_its_folders_is_refused(tmp_path: Path) -> None:
    bundle(tmp_path / "a" / "2", "a", "2")

    async def test(world: World) -> None:
        await world.repository.refresh()
        (tmp_path / "a" / "3").mkdir()
        (tmp_path / "a" / "3" / MANIFEST).write_text("{}")
        await world.repository.refresh()
        assert world.metric("demur_model_stale", model="a") == 1
        shutil.rmtree(tmp_path / "a" / "2")
        for _ in range(2):
            await world.repository.refresh()
        assert not world.serving()
        assert world.metric("demur_model_stale", model="a") == 1
        shutil.rmtree(tmp_path / "a" / "3")
        for _ in range(2):
            await world.repository.refresh()
        assert world.metric("demur_model_stale", model="a") == 0

    run(test, tmp_path)


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
        assert world.metric("demur_model_stale", model="a") == 1
        trusted = True
        await world.repository.refresh()
        assert set(world.serving()) == {"a 1"}
        assert world.metric("demur_model_stale", model="a") == 0

    run(test, tmp_path)
    assert folder.is_dir()


def test_a_bad_version_goes_by_the_name_of_its_model_and_is_forgotten_with_its_folder(tmp_path: Path) -> None:
    folder = tmp_path / "delta" / "2"
    folder.mkdir(parents=True)
    (folder / "manifest.json").write_text("nonsense")

    async def test(world: World) -> None:
        await world.repository.refresh()
        assert world.metric("demur_model_stale", model="delta") == 1
        assert [one.name for one in world.repository.records.values()] == ["delta"]
        shutil.rmtree(folder)
        await world.repository.refresh()
        await world.repository.refresh()
        assert world.metric("demur_model_stale", model="delta") == 0
        assert world.repository.records == {}

    run(test, tmp_path)


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
        assert world.metric("demur_model_stale", model="a") == 1
        assert world.metric("demur_model_loads_total", model="a", outcome="failure") == 1
        assert world.serving() == before
        assert file in world.repository.records[folder].reason
        (folder / file).write_bytes(good)
        await world.repository.refresh()
        assert world.metric("demur_model_stale", model="a") == 0
        assert world.repository.records[folder].reason == ""
        assert len(world.loads) == loads

    run(test, None if named else tmp_path, (folder,) if named else ())


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
        assert world.metric("demur_model_stale", model="a") == 1

    run(test, tmp_path)


def test_what_takes_long_to_be_refused_is_not_tried_all_the_time(tmp_path: Path) -> None:
    entry = FolderRecord(tmp_path, "a")
    for attempt, seconds in ((0.0, 60.0), (1200.0, 0.5)):
        assert entry.refused("why", attempt, seconds) == (attempt == 0)
        due = [moment for moment in (attempt + 1.0 * i for i in range(1300)) if entry.due(moment)]
        assert due[0] == pytest.approx(1200.0 if seconds > 1 else attempt + 1)
