"""ASGI middleware around every request; streams and disconnects pass through untouched."""

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence

from fastapi import Response
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..monitoring.metrics import Metrics
from ..security.api_keys import KeyRing
from .access_log import log_exchange
from .disconnect import disconnect_event
from .errors import refusal
from .exchange import EXCHANGE, Exchange, begin_exchange
from .problems import CLIENT_GONE, ProblemError, render
from .request_id import HEADER, make_current

SECURITY_HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
)
# A JSON response needs nothing; a page sets the policy that it needs.
CONTENT_POLICY, NO_CONTENT_POLICY = b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"
# Exact paths: a prefix would also match other spellings of protected paths.
PUBLIC_PATHS = frozenset({"/health/live", "/health/ready", "/v2/health/live", "/v2/health/ready"})
METRICS_PATH = "/metrics"
ID_HEADER = HEADER.lower().encode()


class Exchanges:
    """Counts and times every exchange, and tells of it where that is wanted. trace: makes its spans, None: nobody wants
    them."""

    def __init__(self, metrics: Metrics, access_log: bool) -> None:
        self.metrics, self._access_log = metrics, access_log
        self.trace: Callable[[Exchange], None] | None = None

    def begin(self, exchange: Exchange) -> None:
        """Its id is the current one from now on."""
        make_current(exchange.identity)
        self.metrics.in_flight.inc()

    def end(self, exchange: Exchange) -> None:
        """Counted by route template, so that clients cannot create labels."""
        seconds = asyncio.get_running_loop().time() - exchange.arrived
        self.metrics.in_flight.dec()
        self.metrics.answered(exchange.method, exchange.route or "unmatched", exchange.status, seconds)
        if self._access_log:
            log_exchange(exchange, seconds)
        if self.trace is not None:
            self.trace(exchange)


class Exchanging:
    """Around everything that answers: each request is an exchange, and each answer has its id as `X-Request-ID`, and
    headers that keep browsers from sniffing, framing and caching; while draining, also `Connection: close`."""

    def __init__(self, app: ASGIApp, exchanges: Exchanges) -> None:
        self.app, self.exchanges = app, exchanges

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        exchange = begin_exchange(scope)

        async def noting(message: Message) -> None:
            if message["type"] == "http.response.start":
                exchange.status = message["status"]
                headers = with_security_headers(message["headers"])
                headers = _with_close(headers) if scope["app"].state.runtime.draining else headers
                message["headers"] = [*headers, (ID_HEADER, exchange.identity.encode())]
            exchange.size += len(message.get("body", b""))
            await send(message)

        async def refuse(error: Exception) -> None:
            if exchange.status == CLIENT_GONE:
                await render(exchange.path, *refusal(error, self.exchanges.metrics))(scope, receive, noting)

        self.exchanges.begin(exchange)
        try:
            await self.app(scope, receive, noting)
        except asyncio.CancelledError:  # the time to finish after SIGTERM is over
            await refuse(ProblemError(503, "draining", "The service shut down before the request was complete."))
        except Exception as error:
            await refuse(error)
            exchange.status = 500
            raise
        finally:
            event, exchange.route = disconnect_event(scope), getattr(scope.get("route"), "path", None)
            exchange.complete = event is None or not event.is_set
            exchange.size = 0 if exchange.method == "HEAD" else exchange.size
            self.exchanges.end(exchange)


def with_security_headers(headers: Sequence[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """The headers, and the security headers that are not among them."""
    given = {name.lower(): value for name, value in headers}
    missing = [pair for pair in SECURITY_HEADERS if pair[0] not in given]
    if CONTENT_POLICY not in given:
        missing.append((CONTENT_POLICY, NO_CONTENT_POLICY))
    return [*headers, *missing]


def secured(response: Response) -> Response:
    """The response with the security headers, for responses that do not pass through `Exchanging`."""
    response.raw_headers = with_security_headers(response.raw_headers)
    return response


def _with_close(headers: Sequence[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    return [*(pair for pair in headers if pair[0].lower() != b"connection"), (b"connection", b"close")]


class ApiKeys:
    """Answer requests without a valid key with 401; keys come as `Authorization: Bearer KEY` or `X-API-Key: KEY`.

    `own`: the keys of single paths, None: those of the others; `keys`: those of all other paths, None: none is needed.

    Health is public for load balancers and monitoring, and so are the paths in `public`. Put this inside the CORS
    middleware, which answers browsers' preflights (sent without a key) and lets pages read the 401.
    """

    def __init__(
        self,
        app: ASGIApp,
        keys: KeyRing | None,
        metrics: Metrics,
        public: Collection[str] = (),
        own: Mapping[str, KeyRing | None] | None = None,
    ) -> None:
        self.app, self.keys, self.own, self.metrics = app, keys, own or {}, metrics
        self.public = PUBLIC_PATHS | set(public)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        ring = (self.own.get(scope["path"]) or self.keys) if scope["type"] == "http" else None
        if ring is None or scope["path"] in self.public:
            await self.app(scope, receive, send)
            return
        try:
            scope[EXCHANGE].key = owner_of(ring, Headers(scope=scope))
        except ProblemError as error:
            await render(scope["path"], *refusal(error, self.metrics))(scope, receive, send)
        else:
            await self.app(scope, receive, send)


def owner_of(ring: KeyRing, headers: Headers) -> str:
    """The name of the key among the headers; raises `ProblemError` (401) for none that is in the ring."""
    keys = presented_keys(headers)
    for key in keys:
        if (owner := ring.owner(key)) is not None:
            return owner
    found = "no key" if not keys else "a key that is not known here"
    detail = f"Found {found}, expected one in the header 'Authorization: Bearer KEY' or 'X-API-Key: KEY'."
    raise ProblemError(401, "unauthorized", detail, headers={"WWW-Authenticate": "Bearer"})


def presented_keys(headers: Headers) -> list[bytes]:
    """The keys as the bytes that were sent: Starlette decodes every header value as latin-1. Where a proxy needs
    `Authorization` for itself, the key is in the other header."""
    scheme, _, token = headers.get("authorization", "").partition(" ")
    bearer = token.strip() if scheme.lower() == "bearer" else ""
    return [key.encode("latin-1") for key in (bearer, headers.get("x-api-key", "").strip()) if key]
