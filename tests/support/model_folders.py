"""A repository in its own event loop, over small bundles that are quick to write."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import numpy as np
from prometheus_client import CollectorRegistry

from demur.service.batching import ComputeThreads
from demur.service.inference.predictor import Predictor
from demur.service.models.repository import Repository
from demur.service.models.served import ServedModel
from demur.service.models.store import ModelStore
from demur.service.monitoring.metrics import Metrics
from demur.service.settings import Settings
from tests.support.bundles import FEATURE_SPEC, Synthetic, write_linear

TIMEOUT = 60
INPUTS = np.ones((1, 4), np.float32)


class World:
    """A repository over a folder of models, with its metrics. A test may replace `load`."""

    def __init__(self, models: Path | None, named: tuple[Path, ...] = ()) -> None:
        self.registry = CollectorRegistry()
        metrics, self.compute_threads, self.store = Metrics(self.registry), ComputeThreads(1), ModelStore()
        self.loads: list[Path] = []
        self.load: Callable[[Path], Predictor] = self.load_and_note
        self.repository = Repository(
            self.store,
            lambda folder: self.load(folder),
            lambda predictor: ServedModel(predictor, Settings(), self.compute_threads, metrics),
            metrics,
            named,
            models,
        )
        self.repository.adopt(map(Predictor.load, named))

    def load_and_note(self, folder: Path) -> Predictor:
        self.loads.append(folder)
        return Predictor.load(folder)

    def serving(self) -> dict[str, str]:
        return {f"{model.name} {model.version}": model.digest for model in self.store}

    def metric(self, name: str, /, **labels: str) -> float | None:
        return self.registry.get_sample_value(name, labels)


def run(test: Callable[[World], Awaitable[None]], *arguments: Any) -> None:
    async def whole() -> None:
        world = World(*arguments)
        async with asyncio.timeout(TIMEOUT):
            await test(world)
            await world.repository.close()
        world.compute_threads.shutdown()

    asyncio.run(whole())


def bundle(folder: Path, name: str, version: str = "1", seed: int = 0) -> Synthetic:
    return write_linear(folder, outputs=3, spec=FEATURE_SPEC, seed=seed, name=name, version=version)


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
