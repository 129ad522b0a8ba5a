"""service/models/elsewhere.py: places of bundles, looked at again and again, each by itself."""

import asyncio
import threading
from pathlib import Path

import pytest

from demur.service.bundle import BundleError
from demur.service.models import elsewhere
from demur.service.models.elsewhere import Elsewhere
from demur.service.remote.errors import UnreachableError
from demur.service.settings import Settings

QUICK, SLOW = "hf://acme/quick", "hf://acme/slow"


def test_a_place_that_does_not_answer_delays_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looks, proceed = list[str](), threading.Event()

    def pull(uri: str, *_: object, **__: object) -> None:
        looks.append(uri)
        if uri == SLOW:
            assert proceed.wait(60)

    monkeypatch.setattr(elsewhere, "pull", pull)

    async def test() -> None:
        watched = Elsewhere(Settings(bundle=(QUICK, SLOW), cache_dir=tmp_path), lambda *_: None)
        watching = asyncio.create_task(watched.watch(0.001))
        async with asyncio.timeout(60):
            while looks.count(QUICK) < 5:
                await asyncio.sleep(0.001)
        assert looks.count(SLOW) == 1
        proceed.set()
        watching.cancel()

    asyncio.run(test())


def test_a_place_that_does_not_answer_says_nothing_of_what_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcomes = iter([BundleError(tmp_path, "bad", "mend it"), UnreachableError(tmp_path, "no answer"), None])
    noted = list[bool]()

    def pull(*_: object, **__: object) -> None:
        if (error := next(outcomes)) is not None:
            raise error

    monkeypatch.setattr(elsewhere, "pull", pull)

    async def test() -> None:
        watched = Elsewhere(
            Settings(bundle=(QUICK,), cache_dir=tmp_path), lambda _, refused: noted.append(bool(refused))
        )
        for expected in ([True], [True], [True, False]):
            await watched.fetch()
            assert noted == expected

    asyncio.run(test())
