"""The methods of `inference.GRPCInferenceService`, each of them a request to the HTTP application."""

import asyncio
import functools
import json
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
from google.protobuf.message import DecodeError
from starlette.datastructures import Headers

from ..data_plane import INLINE_BYTES
from ..http.middleware import presented_keys
from ..routes.v2_infer import OTHER_BIND
from ..runtime import TIMEOUT_HEADER, Runtime
from ..security.api_keys import KeyRing
from .codec import binder
from .in_process import InProcess, Reply
from .protocol import METHODS, SERVICE, Protocol
from .wire import MalformedMessage, check_parts

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
OF_KEYS = ("authorization", "x-api-key")
PASSED_ON = (
    *OF_KEYS,
    *("x-forwarded-for", "x-request-id", "x-request-timeout", "x-route-key", "traceparent", "tracestate"),
)
PUBLIC = frozenset({"ServerLive", "ServerReady"})  # for load balancers, which have no key
EMPTY = PUBLIC | {"ServerMetadata"}  # their messages have no fields
PASSED_BACK = ("retry-after", "x-request-id")
Context = Any  # grpc.aio.ServicerContext
log = logging.getLogger("demur")


class Refused(Exception):
    """How a call ends that has no answer.

    Raised by the methods here in place of gRPC's own, which keeps the frames that it passes through, and with them the
    message, until a garbage collection.
    """

    def __init__(self, code: Any, detail: str, metadata: tuple[tuple[str, str], ...] = ()) -> None:
        super().__init__(detail)
        self.code, self.detail, self.metadata = code, detail, metadata


class Servicer:
    """Answers through `http`; `runtime` has the threads for what is too large for the event loop."""

    def __init__(
        self, http: InProcess, runtime: Runtime, protocol: Protocol, most_bytes: int, keys: KeyRing | None
    ) -> None:
        """most_bytes: of a message. As many messages arrive at once as fit into the operator's limit on pending bytes;
        the others stay with their clients. keys: one of them is needed before a message is read; None: none is."""
        self._http, self._runtime, self._protocol, self._keys = http, runtime, protocol, keys
        self._seconds = runtime.settings.client_timeout_seconds
        self._arriving = asyncio.Semaphore(max(1, runtime.settings.max_pending_bytes // most_bytes))
        self.stopping = False

    def handler(self) -> Any:
        """For `grpc.aio.Server.add_generic_rpc_handlers`.

        Messages come and go as bytes: parsing large ones on the event loop would keep everybody waiting. Each call is
        taken as a stream of one message, which is read when there is room for it, and not before the call begins.
        """
        answers = {name: functools.partial(self._answer, name, getattr(self, _snake(name))) for name in METHODS}
        methods = {name: grpc.stream_unary_rpc_method_handler(answer) for name, answer in answers.items()}
        return grpc.method_handlers_generic_handler(SERVICE, methods)

    async def _answer(
        self,
        name: str,
        method: Callable[[Any, Context, bytes], Awaitable[Any]],
        _: Any,
        context: Context,
    ) -> bytes:
        """The method's answer as bytes."""
        try:
            if self.stopping:
                raise Refused(Code.UNAVAILABLE, "The service is shutting down.")
            await self._check_key(name, context)
            data = b"" if name in EMPTY else await self._message(name, context)
            found = await method(await self._parsed(name, data), context, data)
            encoded: bytes = found if isinstance(found, bytes) else found.SerializeToString()
            return encoded
        except Refused as refused:
            _end(context, refused.code, refused.detail, refused.metadata)
        except Exception:
            log.exception("a call of %s failed", name)
            _end(context, Code.INTERNAL, "The service failed; the operator's log has the details.")
        return b""

    async def _check_key(self, name: str, context: Context) -> None:
        """The application asks for the key too; but a message takes room, which is for those who have one."""
        if self._keys is None or name in PUBLIC or any(map(self._keys.owner, _presented(context))):
            return
        reply = await self._ask(context, "GET", "/v2")
        if reply.status != 200:  # the file of the keys may have changed meanwhile
            raise _refusal(reply)

    async def _parsed(self, name: str, data: bytes) -> Any:
        def parse() -> Any:
            check_parts(data)
            return self._protocol[f"{name}Request"].FromString(data)

        try:
            return parse() if len(data) <= INLINE_BYTES else await self._runtime.in_thread(parse)
        except (DecodeError, MalformedMessage) as error:
            raise Refused(Code.INVALID_ARGUMENT, f"{name}Request: {error}") from None

    async def _message(self, name: str, context: Context) -> bytes:
        """By the context's own reading: the iterator of messages keeps the last one until a garbage collection."""
        try:
            async with asyncio.timeout(self._seconds), self._arriving:
                found = await context.read()
        except TimeoutError:
            detail = f"The message did not arrive within {self._seconds:g} seconds."
            raise Refused(Code.DEADLINE_EXCEEDED, detail) from None
        if not isinstance(found, bytes):
            raise Refused(Code.INVALID_ARGUMENT, f"{name}Request: found no message")
        return found

    async def server_live(self, _: Any, context: Context, __: bytes) -> Any:
        """Whether the process can do its work."""
        reply = await self._ask(context, "GET", "/v2/health/live")
        return self._protocol["ServerLiveResponse"](live=reply.status == 200)

    async def server_ready(self, _: Any, context: Context, __: bytes) -> Any:
        """Whether requests are welcome."""
        reply = await self._ask(context, "GET", "/v2/health/ready")
        return self._protocol["ServerReadyResponse"](ready=reply.status == 200)

    async def model_ready(self, request: Any, context: Context, _: bytes) -> Any:
        """Whether the model is there and computes."""
        reply = await self._ask(context, "GET", f"{_path(request.name, request.version)}/ready")
        if reply.status not in (200, 404, 503):
            raise _refusal(reply)
        return self._protocol["ModelReadyResponse"](ready=reply.status == 200)

    async def server_metadata(self, _: Any, context: Context, __: bytes) -> Any:
        """The service's name and version."""
        found = await self._json(context, "/v2")
        return self._protocol["ServerMetadataResponse"](name=found["name"], version=found["version"])

    async def model_metadata(self, request: Any, context: Context, _: bytes) -> Any:
        """The model's tensors, and its loaded versions."""
        found = await self._json(context, _path(request.name, request.version))
        fields = ("name", "versions", "platform", "inputs", "outputs")
        return self._protocol["ModelMetadataResponse"](**{field: found[field] for field in fields})

    async def model_infer(self, request: Any, context: Context, data: bytes) -> bytes:
        """The outputs asked for."""
        path = f"{_path(request.model_name, request.model_version)}/infer"
        reply = await self._ask(context, "POST", path, data, **{OTHER_BIND: binder(self._protocol, request)})
        if reply.status != 200:
            raise _refusal(reply)
        await context.send_initial_metadata(_passed_back(reply))
        return reply.body

    async def _json(self, context: Context, path: str) -> dict[str, Any]:
        reply = await self._ask(context, "GET", path)
        if reply.status != 200:
            raise _refusal(reply)
        found: dict[str, Any] = json.loads(reply.body)
        return found

    async def _ask(self, context: Context, method: str, path: str, body: bytes = b"", **extensions: Any) -> Reply:
        given = {
            key: value
            for key, value in context.invocation_metadata() or ()
            if key in PASSED_ON and isinstance(value, str)
        }
        left = context.time_remaining()
        if left is not None and left > 0:
            given.setdefault(TIMEOUT_HEADER.lower(), f"{left:.6f}")
        return await self._http.ask(method, path, given, body, _address(context), **extensions)


def _presented(context: Context) -> list[bytes]:
    """The keys that the call brings."""
    raw = [
        (name.encode(), value.encode(errors="surrogateescape"))
        for name, value in context.invocation_metadata() or ()
        if name in OF_KEYS and isinstance(value, str)
    ]
    return presented_keys(Headers(raw=raw))


def _refusal(reply: Reply) -> Refused:
    """The answer's error."""
    try:
        detail = json.loads(reply.body)["error"]
    except (ValueError, KeyError, TypeError):
        detail = f"The service answered with status {reply.status}."
    return Refused(CODES.get(reply.status, Code.INTERNAL), detail, _passed_back(reply))


def _end(context: Context, code: Any, detail: str, metadata: tuple[tuple[str, str], ...] = ()) -> None:
    context.set_code(code)
    context.set_details(detail)
    context.set_trailing_metadata(metadata)


def _passed_back(reply: Reply) -> tuple[tuple[str, str], ...]:
    return tuple((name, reply.headers[name]) for name in PASSED_BACK if name in reply.headers)


def _path(name: str, version: str) -> str:
    """Of a model, as the HTTP application has it: its scope holds paths unquoted."""
    for text in (name, version):
        if "/" in text:  # it would be another path
            raise Refused(Code.NOT_FOUND, f"found {text!r:.100}, expected the name and the version of a model")
    return f"/v2/models/{name}" + (f"/versions/{version}" if version else "")


def _address(context: Context) -> str:
    """The client's, of "ipv4:127.0.0.1:5000" or "ipv6:%5B::1%5D:5000"."""
    _, _, address = context.peer().partition(":")
    return str(address.rpartition(":")[0].replace("%5B", "").replace("%5D", ""))


def _snake(name: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name).lstrip("_")
