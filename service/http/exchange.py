"""A request and its answer, whatever protocol they come by: what metrics, the access log and traces tell of."""

import asyncio
import time
from dataclasses import dataclass, field

from starlette.requests import HTTPConnection
from starlette.types import Scope

from .problems import CLIENT_GONE
from .request_id import id_of
from .steps import Steps

ARRIVAL, EXCHANGE = "demur.arrival", "demur.exchange"


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
    began: float = field(default_factory=time.perf_counter)
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
