"""What every call passes, whatever it asks for: its id, the count of calls, its key, the wait for its message, and its
refusal."""

import asyncio
import contextlib
import functools
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import grpc
from fastapi import FastAPI
from google.protobuf.message import DecodeError
from starlette.requests import ClientDisconnect
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from ..batching.errors import CancelledWhileSlow
from ..decoding import INLINE_BYTES
from ..http.admission import Lease
from ..http.deadline import HEADER as TIMEOUT_HEADER
from ..http.disconnect import ClientGaveUp
from ..http.errors import refusal
from ..http.exchange import Exchange
from ..http.middleware import owner_of
from ..http.problems import CLIENT_GONE, ProblemError
from ..routes.direct import RequestHeaders
from ..runtime import Runtime
from ..security.api_keys import KeyRing
from .wire import MalformedMessage, check_parts

QUICK_SECONDS = 1.0  # a message that is there so soon gives way to no other
MOST_WAITING = 1024


def shutting_down() -> ProblemError:
    """How calls end then."""
    return ProblemError(503, "draining", "The service is shutting down.")


class Waits:
    """Calls that wait for their messages: for how long, and which of them give way where there are too many.

    most: so many may wait for more than `QUICK_SECONDS` each.
    """

    def __init__(self, most: int) -> None:
        self._most = max(1, min(MOST_WAITING, most))
        self._waiting: dict[asyncio.Timeout, float] = {}  # since when, the oldest first
        self.stopping = False

    def stop(self) -> None:
        """End them all."""
        self.stopping = True
        for waiting in self._waiting:
            _end(waiting)

    @contextlib.asynccontextmanager
    async def held(self, seconds: float) -> AsyncIterator[None]:
        """A block in which a client lets the service wait; raises `ProblemError` (408) where it does so for longer, 429
        where it gives way, and 503 at the end."""
        self._make_room()
        waiting = asyncio.timeout(seconds)
        try:
            async with waiting:
                self._waiting[waiting] = asyncio.get_running_loop().time()
                yield
        except TimeoutError:
            if self.stopping:
                raise shutting_down() from None
            if waiting not in self._waiting:
                detail = "Others wait for their messages too, this one for the longest time."
                raise ProblemError(429, "busy", detail) from None
            detail = f"The message did not arrive within {seconds:g} seconds."
            raise ProblemError(408, "body_timeout", detail) from None
        finally:
            self._waiting.pop(waiting, None)

    def _make_room(self) -> None:
        long = asyncio.get_running_loop().time() - QUICK_SECONDS
        while len(self._waiting) >= self._most:
            oldest, began = next(iter(self._waiting.items()))
            if began > long and len(self._waiting) < MOST_WAITING:
                return
            del self._waiting[oldest]
            _end(oldest)


def _end(waiting: asyncio.Timeout) -> None:
    if not waiting.expired():  # otherwise it ends anyhow
        waiting.reschedule(0)


Code = grpc.StatusCode
CODES = {
    400: Code.INVALID_ARGUMENT,
    401: Code.UNAUTHENTICATED,
    404: Code.NOT_FOUND,
    408: Code.DEADLINE_EXCEEDED,
    413: Code.INVALID_ARGUMENT,
    415: Code.INVALID_ARGUMENT,
    422: Code.INVALID_ARGUMENT,
    429: Code.RESOURCE_EXHAUSTED,
    499: Code.CANCELLED,
    503: Code.UNAVAILABLE,
    504: Code.DEADLINE_EXCEEDED,
}
TIMEOUT, PROXIED, RETRY_AFTER = TIMEOUT_HEADER.lower().encode(), b"x-forwarded-for", "Retry-After"
PUBLIC_SECONDS = 1.0  # that a message of a few bytes may take
LEAVING_SECONDS = 0.05  # between the end of the messages of a call and that of the call, where its client has left
Context = Any  # grpc.aio.ServicerContext
log = logging.getLogger("demur")


@dataclass(slots=True)
class Call:
    """What is known of one that is answered."""

    exchange: Exchange
    headers: RequestHeaders  # its metadata
    lease: Lease
    data: bytes = b""  # its message


@dataclass(frozen=True)
class Method:
    """asks, path: what it is called over HTTP. message: the class of what it takes, None: it has no fields. answer: of
    the message; raises what the exception handlers answer. public: for load balancers, which have no key."""

    asks: str
    path: str
    message: Any
    answer: Callable[[Any, Call], Awaitable[Any]]
    public: bool = False


class Calls:
    """app: the service over HTTP, whose keys are needed here too, before a message is read. running: the tasks that
    answer, which whoever stops the service waits for. most_bytes: of a message."""

    def __init__(self, app: FastAPI, running: set[asyncio.Task[Any]], most_bytes: int) -> None:
        runtime: Runtime = app.state.runtime
        self._runtime, self._exchanges, self._running = runtime, app.state.exchanges, running
        self._keys: KeyRing | None = app.state.api_keys
        self._seconds = runtime.settings.client_timeout_seconds
        # As uvicorn does over HTTP.
        self._trusting = ProxyHeadersMiddleware(_nothing, list(runtime.settings.trusted_proxies))
        self.waits = Waits(runtime.settings.max_pending_bytes // most_bytes)

    def handler(self, method: Method) -> Any:
        """Messages come and go as bytes: parsing large ones on the event loop would keep everybody waiting. Each call
        is taken as a stream of one message, which is not read before the call begins.
        """
        return grpc.stream_unary_rpc_method_handler(functools.partial(self._answer, method))

    async def _exchange(self, asks: str, path: str, context: Context) -> Exchange:
        """Of a call, which is not counted yet."""
        headers = [
            (name.encode(), value.encode(errors="surrogateescape"))
            for name, value in context.invocation_metadata() or ()
            if isinstance(value, str)
        ]
        names, left = {name for name, _ in headers}, context.time_remaining()
        if left is not None and left > 0 and TIMEOUT not in names:
            headers.append((TIMEOUT, b"%.6f" % left))
        scope: Any = {"type": "http", "scheme": "http", "client": (_address(context), 0), "headers": headers}
        if PROXIED in names:
            await self._trusting(scope, _nothing, _nothing)
        known = path.partition("/{")[0]  # of a model that the message will name
        return Exchange(asks, known, "2", scope["client"], headers, asyncio.get_running_loop().time(), route=path)

    def _refuse(self, error: Exception, exchange: Exchange, context: Context) -> None:
        """How a call ends that has no answer. gRPC's own `abort` keeps the frames that it passes through, and with them
        the message, until a garbage collection."""
        problem, headers = refusal(error, self._exchanges.metrics)
        if problem.status == 500:
            log.error("a call of %s failed", exchange.path, exc_info=error)
        exchange.status = problem.status
        context.set_code(CODES.get(problem.status, Code.INTERNAL))
        context.set_details(problem.detail)
        after = ((RETRY_AFTER.lower(), headers[RETRY_AFTER]),) if RETRY_AFTER in headers else ()
        context.set_trailing_metadata((*after, ("x-request-id", exchange.identity)))

    async def _answer(self, method: Method, _: Any, context: Context) -> bytes:
        """The method's answer as bytes."""
        exchange = await self._exchange(method.asks, method.path, context)
        headers, lease = RequestHeaders(raw=exchange.headers), self._runtime.byte_budget.lease()
        call, task = Call(exchange, headers, lease), asyncio.current_task()
        assert task is not None
        self._begin(call, task)
        try:
            if self.waits.stopping:
                raise shutting_down()
            if self._keys is not None and not method.public:
                exchange.key = owner_of(self._keys, headers)
            message = None if method.message is None else await self._message(method, context, call)
            found = await method.answer(message, call)
            body: bytes = found if isinstance(found, bytes) else found.SerializeToString()
        except asyncio.CancelledError as error:
            left = ClientGaveUp() if isinstance(error, CancelledWhileSlow) else ClientDisconnect()
            exchange.complete = False
            self._refuse(shutting_down() if self.waits.stopping else left, exchange, context)
            if not self.waits.stopping:
                raise
            return b""
        except Exception as error:
            self._refuse(error, exchange, context)
            return b""
        if exchange.status == CLIENT_GONE:
            exchange.status = 200
        exchange.size = len(body)
        context.set_trailing_metadata((("x-request-id", exchange.identity),))
        # The client has so long to take the answer; then this task, which sends it, ends.
        ending = asyncio.get_running_loop().call_later(self._seconds, _leave, exchange, task)
        task.add_done_callback(lambda _: ending.cancel())
        return body

    def _begin(self, call: Call, task: asyncio.Task[Any]) -> None:
        """Until the task ends, when the client has the answer, or has left."""

        def end(_: Any) -> None:
            call.lease.release()
            self._exchanges.end(call.exchange)
            self._running.discard(task)

        self._exchanges.begin(call.exchange)
        self._running.add(task)
        task.add_done_callback(end)

    async def _message(self, method: Method, context: Context, call: Call) -> Any:
        """The message that the method takes.

        By the context's own reading: the iterator of messages keeps the last one until a garbage collection.
        """
        async with self.waits.held(PUBLIC_SECONDS if method.public else self._seconds):
            data = await context.read()
        if not isinstance(data, bytes):
            await asyncio.sleep(LEAVING_SECONDS)  # of a client that has left, the end of its messages is known first
            if context.time_remaining() == 0:
                raise ProblemError(504, "deadline_client", "The deadline passed while the message arrived.")
            raise _no_message(method, "found no message")
        call.lease.grow(len(data))
        call.data = data

        def parse() -> Any:
            check_parts(data)
            return method.message.FromString(data)

        try:
            return parse() if len(data) <= INLINE_BYTES else await self._runtime.decoding.in_thread(parse)
        except (DecodeError, MalformedMessage) as error:
            raise _no_message(method, str(error)) from None


async def _nothing(*_: Any) -> Any:
    """Where a call's scope ends, and what is received and sent there."""


def _leave(exchange: Exchange, task: asyncio.Task[Any]) -> None:
    exchange.complete = False
    task.cancel()


def _no_message(method: Method, found: str) -> ProblemError:
    return ProblemError(400, "http", f"{method.message.DESCRIPTOR.name}: {found}, expected one that is whole.")


def _address(context: Context) -> str:
    """The client's, of "ipv4:127.0.0.1:5000" or "ipv6:%5B::1%5D:5000"."""
    _, _, address = context.peer().partition(":")
    return str(address.rpartition(":")[0].replace("%5B", "").replace("%5D", ""))
