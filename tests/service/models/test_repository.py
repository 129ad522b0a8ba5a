"""service/models/repository.py: models are replaced, and never two with one name."""

import asyncio
from pathlib import Path

import pytest

from demur.service.bundle import BundleError
from tests.support.model_folders import INPUTS, World, bundle, run


def test_a_new_version_in_the_same_folder_replaces_the_old_one(tmp_path: Path) -> None:
    folder = bundle(tmp_path / "a", "a").path

    async def test(world: World) -> None:
        bundle(folder, "a", version="2", seed=1)
        await world.repository.refresh()
        assert set(world.serving()) == {"a 2"}

    run(test, None, (folder,))


def test_a_new_name_in_the_same_folder_answers_by_default(tmp_path: Path) -> None:
    folder = bundle(tmp_path / "a", "a").path

    async def test(world: World) -> None:
        bundle(folder, "b", seed=1)
        await world.repository.refresh()
        assert set(world.serving()) == {"b 1"}
        assert world.repository.store.find().name == "b"
        assert world.repository.missing("named", None) == []

    run(test, None, (folder,))


def test_two_folders_with_the_same_model_and_version_are_an_error(tmp_path: Path) -> None:
    first, second = bundle(tmp_path / "a", "a"), bundle(tmp_path / "b", "a", seed=1)

    async def test(world: World) -> None:
        await world.repository.refresh()
        assert len(world.serving()) == 1
        assert "give one of them another name or version" in world.repository.records[second.path].reason

    run(test, tmp_path)

    async def both() -> None:
        with pytest.raises(BundleError, match=r"found the model 'a' version '1', which the folder '.*/a' holds too"):
            World(None, (first.path, second.path))

    asyncio.run(both())


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
