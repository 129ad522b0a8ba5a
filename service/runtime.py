"""What one running service holds: its models, settings, metrics and the room for requests. No global state."""

import asyncio
import math
from dataclasses import dataclass, field

import anyio
from fastapi import Request

from service.batching import Workers
from service.cpu import available_cpus
from service.inputs import InputLimits
from service.metrics import Metrics
from service.models.repository import Repository
from service.models.store import ModelStore
from service.settings import Settings
from service.web.admission import ByteBudget
from service.web.problems import ProblemError

TIMEOUT_HEADER = "X-Request-Timeout"


@dataclass
class Runtime:
    """`decoders` bounds how many requests are decoded at once; `draining` turns readiness off."""

    settings: Settings
    metrics: Metrics
    store: ModelStore
    repository: Repository
    workers: Workers
    bodies: ByteBudget = field(init=False)
    decoders: anyio.CapacityLimiter = field(init=False)
    limits: InputLimits = field(init=False)
    draining: bool = False

    def __post_init__(self) -> None:
        self.bodies = ByteBudget(self.settings.max_pending_bytes)
        self.decoders = anyio.CapacityLimiter(available_cpus())
        settings = self.settings
        self.limits = InputLimits(
            settings.max_rows, settings.max_pixels, settings.max_total_pixels, settings.max_input_bytes
        )

    @property
    def alive(self) -> bool:
        """Whether every loaded model still computes."""
        return all(model.alive for model in self.store)

    @property
    def ready(self) -> bool:
        """Whether requests are welcome: a model is loaded, every one computes, and no shutdown was asked for."""
        return not self.draining and self.alive and any(True for _ in self.store)

    def deadline(self, request: Request) -> float:
        """When this request's time is over, on the event loop's clock; refuses a header that is no number (422)."""
        seconds = self.settings.request_timeout_seconds
        asked = request.headers.get(TIMEOUT_HEADER)
        if asked is not None:
            seconds = min(seconds, _seconds(asked))
        return asyncio.get_running_loop().time() + seconds


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < math.inf:
        detail = f"{TIMEOUT_HEADER}: found {text!r:.50}, expected seconds above 0."
        raise ProblemError(
            422, "field", detail, field=TIMEOUT_HEADER, found=f"{text!r:.50}", expected="seconds above 0"
        )
    return seconds


def runtime_of(request: Request) -> Runtime:
    """The runtime of the application that answers this request."""
    runtime: Runtime = request.app.state.runtime
    return runtime


async def get_runtime(request: Request) -> Runtime:
    """As `runtime_of`, for FastAPI: it would run a plain function in a thread."""
    return runtime_of(request)
