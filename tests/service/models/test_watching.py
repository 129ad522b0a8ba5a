"""service/models/repository.py: folders come, change and go; the old one serves until something better is."""

import asyncio
import os
import shutil
import weakref
from pathlib import Path

import pytest

from demur.service.bundle import Bundle, BundleError, read_bundle
from demur.service.inference.predictor import Predictor
from tests.support.freed import uncollected
from tests.support.model_folders import INPUTS, World, bundle, run


def test_bundles_in_a_folder_are_found_one_or_two_deep_and_hidden_ones_are_not(tmp_path: Path) -> None:
    bundle(tmp_path / "a", "a")
    for version in ("1", "2"):
        bundle(tmp_path / "b" / version, "b", version)
    bundle(tmp_path / ".staging", "hidden")
    (tmp_path / "empty").mkdir()
    (tmp_path / "lost+found").mkdir()  # of a fresh volume: nobody may read it
    (tmp_path / "lost+found" / "manifest.json").touch()
    (tmp_path / "file").write_text("no folder")

    async def test(world: World) -> None:
        await world.repository.refresh()
        assert set(world.serving()) == {"a 1", "b 1", "b 2"}
        assert sorted(one.name for one in world.repository.records.values()) == ["a", "b", "b"]

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
        assert world.metric("demur_model_info", **info, digest=old.digest) is None
        assert world.metric("demur_model_info", **info, digest=new.digest) == 1

    run(test, tmp_path)


def test_the_memory_of_a_replaced_bundle_is_free_at_once(tmp_path: Path) -> None:
    """Not after a collection of garbage, which halts the whole service, or comes many bundles later."""
    bundle(tmp_path / "a", "a")

    async def test(world: World) -> None:
        await world.repository.refresh()
        model = world.store.find("a")
        await model.predict(INPUTS)
        held = weakref.ref(model), weakref.ref(model.predictor), weakref.ref(model.predictor.graph)
        del model
        with uncollected():
            bundle(tmp_path / "a", "a", seed=1)
            await world.repository.refresh()
            async with asyncio.timeout(10):
                while any(one() is not None for one in held):
                    await asyncio.sleep(0.01)

    run(test, tmp_path)


def test_the_memory_of_a_refused_bundle_is_free_at_once(tmp_path: Path) -> None:
    bundle(tmp_path / "a", "a")

    async def test(world: World) -> None:
        await world.repository.refresh()
        read = list[weakref.ref[Bundle]]()

        def load(folder: Path) -> Predictor:
            found = read_bundle(folder)
            read.append(weakref.ref(found))
            raise BundleError(folder, "cannot be served so")

        world.load = load
        with uncollected():
            bundle(tmp_path / "a", "a", seed=1)
            await world.repository.refresh()
            assert world.repository.records[tmp_path / "a"].reason
            assert [one() for one in read] == [None]

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


def versions(world: World) -> set[str]:
    """Those that a scrape names."""
    samples = [sample for family in world.registry.collect() for sample in family.samples]
    return {sample.labels["version"] for sample in samples if "version" in sample.labels}


def test_the_series_of_what_is_served_no_longer_go(tmp_path: Path) -> None:
    folder = bundle(tmp_path / "a", "a").path

    async def test(world: World) -> None:
        await world.repository.refresh()
        await world.store.find("a").predict(INPUTS)
        for version in map(str, range(2, 6)):
            bundle(folder, "a", version)
            await world.repository.refresh()
            while versions(world) != {version}:
                await asyncio.sleep(0)
        assert versions(world) == {"5"}

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
