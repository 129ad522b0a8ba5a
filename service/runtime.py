"""The state of one running service: models, settings, metrics, and the budget for requests. Nothing is global."""

import asyncio
import contextlib
import logging
import math
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import numpy.typing as npt
from fastapi import Request

from .batching import ClientDeadlineExceeded, ComputeThreads, DeadlineExceeded
from .codec.arrays import InputLimits
from .codec.decoders.pool import DecoderPool
from .environment.memory import resident_bytes
from .http.admission import ByteBudget
from .http.problems import ProblemError
from .http.request_id import current_id, random_id
from .inference.decision import Decision
from .models.audit_lines import Asker, audit_lines
from .models.cpu_share import all_threads
from .models.elsewhere import Elsewhere
from .models.feedback import Feedback
from .models.repository import Repository
from .models.served import AnyPrediction, ServedModel
from .models.shadow import Shadow
from .models.store import ModelStore
from .monitoring.audit import AuditTrail
from .monitoring.exposition import Form, exposition
from .monitoring.metrics import Metrics
from .monitoring.shared_scrape import SharedScrape
from .settings import Settings

if TYPE_CHECKING:
    from .monitoring.tracing import Tracing

Array = npt.NDArray[Any]
T = TypeVar("T")
DECODED_SIZE = 4  # of decoded examples to the body: bytes become float32
BASE_BYTES = 128 * 2**20  # of a decoder process: Python, NumPy and Pillow
# Of one that reads texts: several tokenizers, of which one of 250,000 words takes some 200 MiB.
TEXT_BYTES = 2 * 2**30
TIMEOUT_HEADER = "X-Request-Timeout"
log = logging.getLogger("demur")


@dataclass(frozen=True)
class RequestDeadline:
    """When a request's time ends, on the event loop's clock: at `at`, and never after `latest`, which the operator's
    setting allows."""

    at: float
    latest: float

    def sooner(self, at: float) -> "RequestDeadline":
        """The earlier one of this deadline and `at`."""
        return RequestDeadline(min(self.at, at), self.latest)

    @contextlib.contextmanager
    def attributed(self) -> Iterator[None]:
        """Turn `DeadlineExceeded` into `ClientDeadlineExceeded` where the client chose the deadline and the service was
        not slow: no client may cause an alert with a header, and none hides by its header that the service is slow."""
        try:
            yield
        except DeadlineExceeded as error:
            if self.at < self.latest and not error.slow:
                raise ClientDeadlineExceeded(f"{error}") from None
            raise


@dataclass
class Runtime:
    """Everything that the routes share. Create it in a running event loop, and close it.

    `byte_budget` bounds what all requests hold; `body_threads` decompress, parse and serialise what takes too long for
    the event loop; `decoders` are processes for images and forms, `text_decoders` for texts; `audit` keeps every
    prediction, and `feedback` gives receipts for them and counts their labels, where that is wanted; `tracing` makes
    spans; `draining` makes `/health/ready` fail; `scrape` renders the metrics.
    """

    settings: Settings
    metrics: Metrics
    store: ModelStore
    repository: Repository
    elsewhere: Elsewhere
    compute_threads: ComputeThreads
    audit: AuditTrail | None = None
    feedback: Feedback | None = None
    shadow: Shadow | None = None
    tracing: "Tracing | None" = None
    byte_budget: ByteBudget = field(init=False)
    body_threads: ThreadPoolExecutor = field(init=False)
    decoders: DecoderPool = field(init=False)
    text_decoders: DecoderPool = field(init=False)
    limits: InputLimits = field(init=False)
    scrape: SharedScrape[Form] = field(init=False)
    draining: bool = False
    _hang_logged: bool = False

    def __post_init__(self) -> None:
        self.byte_budget = ByteBudget(self.settings.max_pending_bytes)
        settings, at_once = self.settings, all_threads(self.settings)
        self.body_threads = ThreadPoolExecutor(at_once, thread_name_prefix="demur-bodies")
        self.decoders = DecoderPool(at_once, decoder_bytes(settings))
        self.text_decoders = DecoderPool(at_once, TEXT_BYTES)
        self.limits = InputLimits(
            settings.max_rows, settings.max_pixels, 4 * settings.max_pixels, DECODED_SIZE * settings.max_body_bytes
        )
        self.scrape = SharedScrape(self._count, partial(exposition, self.metrics))

    async def in_thread(self, function: Callable[[], T]) -> T:
        """The result of `function`, which takes a bounded time, but too long for the event loop."""
        return await asyncio.get_running_loop().run_in_executor(self.body_threads, function)

    async def close(self) -> None:
        """End the threads and the decoder processes; no request waits for them any more."""
        await asyncio.gather(self.decoders.close(), self.text_decoders.close())
        self.body_threads.shutdown(wait=False, cancel_futures=True)

    def record(
        self,
        asker: Asker,
        model: ServedModel,
        decision: Decision,
        request_id: str | None,
        prediction: AnyPrediction,
        inputs: Array,
        observed: bool = True,
    ) -> None:
        """Hand the answer of a request to the audit trail and to the shadow, where there are such; `decision` has
        decided. request_id: None for that of the log. observed: whether the shadow sees it; a trial is not.
        """
        if self.shadow is not None and observed and decision is model.predictor.decision:
            self.shadow.offer(model, prediction, inputs)
        if self.audit is not None:
            kept, name = inputs if self.settings.audit_inputs else None, request_id or current_id() or random_id()
            make = partial(audit_lines, model, decision, name, time.time(), prediction, kept, asker, not observed)
            numbers = prediction.mean.size + (0 if kept is None else kept.size)
            self.audit.note(make, len(prediction), numbers)

    def receipt(self, model: ServedModel, decision: Decision, prediction: AnyPrediction) -> str | None:
        """The receipt of an answer that `decision` has decided, None without feedback."""
        return None if self.feedback is None else self.feedback.receipt(model, decision, prediction)

    @property
    def alive(self) -> bool:
        """Whether every loaded model still computes, and no batch hangs."""
        return not self.hangs and all(model.alive for model in self.store)

    @property
    def hangs(self) -> bool:
        """Whether a batch has been computed for longer than `compute_timeout_seconds`."""
        return self.compute_threads.oldest_seconds > self.settings.compute_timeout_seconds

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

    @property
    def ready(self) -> bool:
        """Whether to send requests: some model is loaded, every model computes, and the service is not draining."""
        return not self.draining and self.alive and self.store.answers

    def deadline(self, arrived: float, asked: str | None) -> RequestDeadline:
        """That of a request, from its arrival on, by its own header; raises `ProblemError` (422) for one that is no
        number."""
        latest = arrived + self.settings.request_timeout_seconds
        return RequestDeadline(latest if asked is None else min(latest, arrived + _seconds(asked)), latest)


def decoder_bytes(settings: Settings) -> int:
    """Memory of a decoder process: as much as the largest request that the settings allow, in bytes.

    The body exists as received, as base64 texts and as a file. A pixel takes four bytes in each of at most five images
    between the file and the array, and the array exists twice.
    """
    return BASE_BYTES + (3 + 2 * DECODED_SIZE) * settings.max_body_bytes + 5 * 4 * settings.max_pixels


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < math.inf:
        found, expected = f"{text!r:.50}", "a number of seconds above 0, and finite"
        detail = f"{TIMEOUT_HEADER}: found {found}, expected {expected}."
        raise ProblemError(422, "field", detail, field=TIMEOUT_HEADER, found=found, expected=expected)
    return seconds


def runtime_of(request: Request) -> Runtime:
    """The runtime of the application that serves this request."""
    runtime: Runtime = request.app.state.runtime
    return runtime


async def get_runtime(request: Request) -> Runtime:
    """`runtime_of` as a FastAPI dependency; a plain function would run in a thread."""
    return runtime_of(request)
