"""service/models/repository.py: models are loaded and unloaded by name, replaced, and never two with one name."""

import asyncio
from pathlib import Path

import pytest

from probity.service.bundle import MODEL, BundleError
from probity.service.models.store import ModelNotFound
from tests.support.model_folders import INPUTS, World, bundle, run


def test_loading_one_model_hides_no_other_from_the_watch(tmp_path: Path) -> None:
    bundle(tmp_path / "a", "a")

    async def test(world: World) -> None:
        await world.repository.refresh()
        bundle(tmp_path / "new", "new")
        await world.repository.load("a")
        await world.repository.refresh()
        assert set(world.serving()) == {"a 1", "new 1"}

    run(test, tmp_path)


def test_a_new_version_in_the_same_folder_replaces_the_old_one(tmp_path: Path) -> None:
    folder = bundle(tmp_path / "a", "a").path

    async def test(world: World) -> None:
        bundle(folder, "a", version="2", seed=1)
        await world.repository.refresh()
        assert set(world.serving()) == {"a 2"}

    run(test, None, (folder,))


def test_two_folders_with_the_same_model_and_version_are_an_error(tmp_path: Path) -> None:
    first, second = bundle(tmp_path / "a", "a"), bundle(tmp_path / "b", "a", seed=1)

    async def test(world: World) -> None:
        await world.repository.refresh()
        assert len(world.serving()) == 1
        assert "give one of them another name or version" in world.repository.index()[1].reason

    run(test, tmp_path)

    async def both() -> None:
        with pytest.raises(BundleError, match=r"found the model 'a' version '1', which the folder '.*/a' holds too"):
            World(None, (first.path, second.path))

    asyncio.run(both())


def test_unloading_lasts_until_it_is_loaded_again(tmp_path: Path) -> None:
    bundle(tmp_path / "a", "a")

    async def test(world: World) -> None:
        await world.repository.refresh()
        await world.repository.unload("a")
        assert world.serving() == {}
        assert [(one.state, one.reason) for one in world.repository.index()] == [("UNAVAILABLE", "unloaded")]
        await world.repository.refresh()
        assert world.serving() == {}
        await world.repository.load("a")
        assert set(world.serving()) == {"a 1"}
        with pytest.raises(ModelNotFound):
            await world.repository.unload("b")
        with pytest.raises(ModelNotFound):
            await world.repository.load("b")

    run(test, tmp_path)


def test_loading_a_bad_bundle_is_an_error_and_the_old_one_serves(tmp_path: Path) -> None:
    folder = bundle(tmp_path / "a", "a").path

    async def test(world: World) -> None:
        before = world.serving()
        (folder / MODEL).write_bytes(b"changed")
        with pytest.raises(BundleError, match=MODEL):
            await world.repository.load("a")
        assert world.serving() == before

    run(test, None, (folder,))


def test_closing_waits_for_those_who_still_compute(tmp_path: Path) -> None:
    folder = bundle(tmp_path / "a", "a").path

    async def test(world: World) -> None:
        model = world.store.find("a")
        with model.in_use():
            closing = asyncio.create_task(world.repository.close())
            await asyncio.sleep(0)
            assert not closing.done()
            assert len((await model.predict(INPUTS)).result) == 1
        await closing

    run(test, None, (folder,))
