"""service/models/repository.py: what happens to the others, and to a bundle itself, while it is loaded."""

import asyncio
import contextlib
import shutil
from pathlib import Path

from tests.support.batching import until
from tests.support.model_folders import INPUTS, Held, World, bundle, run


def test_while_one_is_loaded_others_are_loaded_and_answered(tmp_path: Path) -> None:
    for name in ("a", "slow"):
        bundle(tmp_path / name, name)

    async def test(world: World) -> None:
        held = Held(world, "slow")
        watching = asyncio.create_task(world.repository.watch(0.001))
        await held.until_begun()
        await until(lambda: set(world.serving()) == {"a 1"})
        bundle(tmp_path / "b", "b")
        await until(lambda: set(world.serving()) == {"a 1", "b 1"})
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
        assert world.repository.records == {}
        assert world.metric("demur_model_stale", model="a") == 0

    run(test, tmp_path)
