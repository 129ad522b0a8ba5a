"""One running service: its parts, in the order in which they begin, and how it is. Nothing is global."""

import asyncio
import contextlib
import logging
import math
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from fastapi import Request

from .batching import ComputeThreads
from .decoding import Decoding
from .environment.memory import resident_bytes
from .http.admission import ByteBudget
from .inference.predictor import Predictor
from .models.cpu_share import all_threads
from .models.elsewhere import Elsewhere
from .models.loading import load_predictor
from .models.repository import Repository
from .models.served import ServedModel
from .models.store import ModelStore
from .models.trials import Trials
from .monitoring.exposition import Form, exposition
from .monitoring.metrics import Metrics
from .monitoring.shared_scrape import SharedScrape
from .recording.recording import Recording
from .settings import Settings

if TYPE_CHECKING:
    from .monitoring.tracing import Tracing

# When models are closed, no client waits any more: a batch that is still computed may hang.
CLOSE_SECONDS = 2.0
log = logging.getLogger("demur")


@dataclass
class Runtime:
    """Everything that the routes share. `byte_budget` bounds what all requests hold; `draining` makes `/health/ready`
    fail; `scrape` renders the metrics; `tracing` makes spans, None: it is not wanted."""

    settings: Settings
    metrics: Metrics
    store: ModelStore
    repository: Repository
    elsewhere: Elsewhere
    compute_threads: ComputeThreads
    recording: Recording
    decoding: Decoding
    byte_budget: ByteBudget
    tracing: "Tracing | None" = None
    scrape: SharedScrape[Form] = field(init=False)
    draining: bool = False
    _hang_logged: bool = False

    def __post_init__(self) -> None:
        self.scrape = SharedScrape(self._count, partial(exposition, self.metrics))

    @property
    def alive(self) -> bool:
        """Whether every loaded model still computes, and no batch hangs."""
        return not self.hangs and all(model.alive for model in self.store)

    @property
    def hangs(self) -> bool:
        """Whether a batch has been computed for longer than `compute_timeout_seconds`."""
        return self.compute_threads.oldest_seconds > self.settings.compute_timeout_seconds

    @property
    def ready(self) -> bool:
        """Whether to send requests: some model is loaded, every model computes, and the service is not draining."""
        return not self.draining and self.alive and self.store.answers

    def _count(self) -> None:
        """Bring the metrics up to date."""
        self.check_computation()
        for model in self.store:
            model.metrics.waiting(model.queue_rows)
            model.metrics.count()

    def check_computation(self) -> None:
        """Measure memory and the oldest running batch, and log once if it hangs."""
        self.metrics.memory.set(resident_bytes() or math.nan)
        seconds = self.compute_threads.oldest_seconds
        self.metrics.oldest_batch.set(seconds)
        if self.hangs and not self._hang_logged:
            limit = f"{self.settings.compute_timeout_seconds:g} s (DEMUR_COMPUTE_TIMEOUT_SECONDS)"
            log.error("A batch has been computed for %.1f s, longer than %s: the service is not live", seconds, limit)
        self._hang_logged = self.hangs

    async def refresh(self) -> None:
        """Look for new, changed and removed bundles; raises `OSError` where the models' folder cannot be read."""
        await self.repository.refresh()
        await self.elsewhere.fetch()
        await self.repository.refresh()


@contextlib.asynccontextmanager
async def running(
    loaded: Sequence[Predictor],
    settings: Settings,
    metrics: Metrics,
    recording: Recording,
    tracing: "Tracing | None",
    version: str,
) -> AsyncIterator[Runtime]:
    """Run the models and their queues; at the end, give what still runs two seconds. version: of the service."""
    threads, store, trials = ComputeThreads(all_threads(settings)), ModelStore(settings.default_model), Trials(settings)
    recording.start(store, version)
    repository = Repository(
        store,
        lambda folder: load_predictor(folder, settings, trials),
        lambda predictor: ServedModel(predictor, settings, threads, metrics),
        metrics,
        [predictor.path for predictor in loaded],
        settings.models,
        recording.event,
    )
    repository.adopt(loaded)
    elsewhere, decoding = Elsewhere(settings, repository.note_elsewhere), Decoding(settings)
    watching = asyncio.create_task(_watch(repository, elsewhere, settings))
    budget = ByteBudget(settings.max_pending_bytes)
    runtime = Runtime(settings, metrics, store, repository, elsewhere, threads, recording, decoding, budget, tracing)
    try:
        yield runtime
    finally:
        await decoding.close()
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                await repository.stop_loading()
                await repository.close()
        except TimeoutError:
            log.error("A batch is still computed after %g s and is left behind", CLOSE_SECONDS)
        trials.close()
        threads.shutdown()
        if tracing is not None:
            await tracing.close(CLOSE_SECONDS)
        recording.close()


async def _watch(repository: Repository, elsewhere: Elsewhere, settings: Settings) -> None:
    if (seconds := settings.watch_seconds) is not None:
        await asyncio.gather(repository.watch(seconds), elsewhere.watch(seconds))


def runtime_of(request: Request) -> Runtime:
    """The runtime of the application that serves this request."""
    runtime: Runtime = request.app.state.runtime
    return runtime


async def get_runtime(request: Request) -> Runtime:
    """`runtime_of` as a FastAPI dependency; a plain function would run in a thread."""
    return runtime_of(request)
