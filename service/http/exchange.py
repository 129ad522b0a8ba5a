"""A request and its answer, whatever protocol they come by: what metrics, the access log and traces tell of."""

import asyncio
import time
from dataclasses import dataclass, field

from starlette.requests import HTTPConnection
from starlette.types import Scope

from ..batching import Answered
from ..inference.prediction import Prediction
from ..models.served import ServedModel
from .problems import CLIENT_GONE
from .request_id import id_of

ARRIVAL, EXCHANGE = "demur.arrival", "demur.exchange"


@dataclass(slots=True)
class Steps:
    """When the steps of a prediction ended, by `time.perf_counter`; None: the request did not come so far."""

    model: ServedModel | None = None
    received_at: float | None = None
    decoded_at: float | None = None
    answered_at: float | None = None
    rows: int | None = None
    answer: Answered[Prediction] | None = None

    def received(self, model: ServedModel) -> None:
        """The body of a request to this model is there."""
        self.model, self.received_at = model, time.perf_counter()

    def decoded(self, rows: int) -> None:
        """The body was so many examples."""
        self.rows, self.decoded_at = rows, time.perf_counter()

    def answered(self, answer: Answered[Prediction]) -> None:
        """They are predicted."""
        self.answer, self.answered_at = answer, time.perf_counter()

    @property
    def decode_seconds(self) -> float:
        """How long decoding took."""
        return (self.decoded_at or 0.0) - (self.received_at or 0.0)

    def spans(self, end: float) -> list[tuple[str, float, float]]:
        """Name, beginning and end of each step of a request that ended at `end`. Without an answer, the last step lasts
        until then."""
        if self.received_at is None:
            return []
        if self.decoded_at is None:
            return [("decode", self.received_at, end)]
        decode = ("decode", self.received_at, self.decoded_at)
        if self.answer is None or self.answered_at is None:
            return [decode, ("queue", self.decoded_at, end)]
        # What is not computed is waited for: for a batch, a thread, and for the event loop to go on.
        taken = max(self.decoded_at, self.answered_at - self.answer.compute_seconds)
        return [decode, ("queue", self.decoded_at, taken), ("compute", taken, self.answered_at)]


@dataclass(slots=True)
class Exchange:
    """version: of HTTP. arrived: when the request began to, on the event loop's clock: from then on its deadline runs,
    however long it waits to be looked at. route: None where nothing has such a path. key: the name of the API key.
    status: of the answer, which has `size` bytes. complete: whether the client was still there at its end."""

    method: str
    path: str
    version: str
    client: tuple[str, int] | None
    headers: list[tuple[bytes, bytes]]
    arrived: float
    scheme: str = "http"
    route: str | None = None
    key: str | None = None
    status: int = CLIENT_GONE
    size: int = 0
    complete: bool = True
    steps: Steps = field(default_factory=Steps)
    identity: str = field(init=False)

    def __post_init__(self) -> None:
        self.identity = id_of(self.headers)


def begin_exchange(scope: Scope) -> Exchange:
    """Of the request of this ASGI scope, which has it from now on."""
    noted = scope.get("extensions", {}).get(ARRIVAL, {})  # not every server does
    exchange = Exchange(
        scope["method"],
        scope["path"],
        scope["http_version"],
        scope.get("client"),
        scope["headers"],
        noted.get("at") or asyncio.get_running_loop().time(),
        scope["scheme"],
    )
    scope[EXCHANGE] = exchange
    return exchange


def exchange_of(connection: HTTPConnection) -> Exchange:
    """The one that has begun with this request."""
    exchange: Exchange = connection.scope[EXCHANGE]
    return exchange
