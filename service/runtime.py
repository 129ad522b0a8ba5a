"""What one running service holds: its model, settings, metrics and worker slots. No global state."""

from dataclasses import dataclass, field

import anyio
from fastapi import Request

from service.metrics import Metrics
from service.predictor import Predictor
from service.settings import Settings


@dataclass
class Runtime:
    """`limiter` bounds how many requests are computed at once; `draining` turns readiness off."""

    predictor: Predictor
    settings: Settings
    metrics: Metrics
    limiter: anyio.CapacityLimiter = field(init=False)
    draining: bool = False

    def __post_init__(self) -> None:
        self.limiter = anyio.CapacityLimiter(self.settings.concurrency)


def get_runtime(request: Request) -> Runtime:
    """The runtime of the application that answers this request."""
    runtime: Runtime = request.app.state.runtime
    return runtime
