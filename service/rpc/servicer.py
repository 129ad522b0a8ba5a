"""The methods of `inference.GRPCInferenceService`, each of them a request to the HTTP application."""

import functools
import json
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
from google.protobuf.message import DecodeError

from probity.service.oip.errors import RequestError
from probity.service.oip.request import LENGTH_HEADER
from probity.service.routes.decode import INLINE_BYTES
from probity.service.rpc.in_process import InProcess, Reply
from probity.service.rpc.infer import to_http, to_message
from probity.service.rpc.protocol import METHODS, SERVICE, Protocol
from probity.service.rpc.wire import MalformedMessage, check_parts
from probity.service.runtime import TIMEOUT_HEADER, Runtime

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
PASSED_ON = ("authorization", "x-api-key", "x-request-id", "x-request-timeout")
PASSED_BACK = ("retry-after", "x-request-id")
Context = Any  # grpc.aio.ServicerContext


class Servicer:
    """Answers through `http`; `runtime` has the threads for what is too large for the event loop."""

    def __init__(self, http: InProcess, runtime: Runtime, protocol: Protocol) -> None:
        self._http, self._runtime, self._protocol = http, runtime, protocol

    def handler(self) -> Any:
        """For `grpc.aio.Server.add_generic_rpc_handlers`. Messages come and go as bytes: parsing large ones on the
        event loop would keep everybody waiting."""
        methods = {
            name: grpc.unary_unary_rpc_method_handler(
                functools.partial(self._answer, name, getattr(self, _snake(name)))
            )
            for name in METHODS
        }
        return grpc.method_handlers_generic_handler(SERVICE, methods)

    async def _answer(
        self, name: str, method: Callable[[Any, Context], Awaitable[Any]], data: bytes, context: Context
    ) -> bytes:
        """The method's answer as bytes."""
        parse = functools.partial(self._parsed, name, data)
        try:
            request = parse() if len(data) <= INLINE_BYTES else await self._runtime.in_thread(parse)
        except (DecodeError, MalformedMessage) as error:
            await context.abort(Code.INVALID_ARGUMENT, f"{name}Request: {error}")
        message = await method(request, context)
        encoded: bytes = message.SerializeToString()
        return encoded

    def _parsed(self, name: str, data: bytes) -> Any:
        check_parts(data)
        return self._protocol[f"{name}Request"].FromString(data)

    async def server_live(self, _: Any, context: Context) -> Any:
        """Whether the process can do its work."""
        reply = await self._ask(context, "GET", "/v2/health/live")
        return self._protocol["ServerLiveResponse"](live=reply.status == 200)

    async def server_ready(self, _: Any, context: Context) -> Any:
        """Whether requests are welcome."""
        reply = await self._ask(context, "GET", "/v2/health/ready")
        return self._protocol["ServerReadyResponse"](ready=reply.status == 200)

    async def model_ready(self, request: Any, context: Context) -> Any:
        """Whether the model is there and computes."""
        reply = await self._ask(context, "GET", f"{_path(request.name, request.version)}/ready")
        if reply.status not in (200, 404, 503):
            await _refuse(context, reply)
        return self._protocol["ModelReadyResponse"](ready=reply.status == 200)

    async def server_metadata(self, _: Any, context: Context) -> Any:
        """The service's name and version."""
        found = await self._json(context, "/v2")
        return self._protocol["ServerMetadataResponse"](name=found["name"], version=found["version"])

    async def model_metadata(self, request: Any, context: Context) -> Any:
        """The model's tensors, and its loaded versions."""
        found = await self._json(context, _path(request.name, request.version))
        fields = ("name", "versions", "platform", "inputs", "outputs")
        return self._protocol["ModelMetadataResponse"](**{field: found[field] for field in fields})

    async def model_infer(self, request: Any, context: Context) -> Any:
        """The outputs asked for."""
        typed = not request.raw_input_contents
        try:
            headers, body = await self._maybe_in_thread(request.ByteSize() if typed else 0, lambda: _joined(request))
        except RequestError as error:
            await context.abort(Code.INVALID_ARGUMENT, f"{error}.")
        path = f"{_path(request.model_name, request.model_version)}/infer"
        reply = await self._ask(context, "POST", path, headers, body)
        if reply.status != 200:
            await _refuse(context, reply)
        make = functools.partial(
            to_message, self._protocol, reply.body, int(reply.headers[LENGTH_HEADER.lower()]), typed
        )
        await context.send_initial_metadata(_passed_back(reply))
        return await self._maybe_in_thread(len(reply.body) if typed else 0, make)

    async def _maybe_in_thread(self, size: int, function: Callable[[], Any]) -> Any:
        return function() if size <= INLINE_BYTES else await self._runtime.in_thread(function)

    async def _json(self, context: Context, path: str) -> dict[str, Any]:
        reply = await self._ask(context, "GET", path)
        if reply.status != 200:
            await _refuse(context, reply)
        found: dict[str, Any] = json.loads(reply.body)
        return found

    async def _ask(
        self, context: Context, method: str, path: str, headers: dict[str, str] | None = None, body: bytes = b""
    ) -> Reply:
        given = {key: value for key, value in context.invocation_metadata() or () if key in PASSED_ON}
        left = context.time_remaining()
        if left is not None and left > 0:
            given.setdefault(TIMEOUT_HEADER.lower(), f"{left:.6f}")
        return await self._http.ask(method, path, {**given, **(headers or {})}, body, _address(context))


def _joined(request: Any) -> tuple[dict[str, str], bytes]:
    headers, pieces = to_http(request)
    return headers, b"".join(pieces)


async def _refuse(context: Context, reply: Reply) -> None:
    """End the call with the answer's error."""
    try:
        detail = json.loads(reply.body)["error"]
    except (ValueError, KeyError, TypeError):
        detail = f"The service answered with status {reply.status}."
    await context.abort(CODES.get(reply.status, Code.INTERNAL), detail, _passed_back(reply))


def _passed_back(reply: Reply) -> tuple[tuple[str, str], ...]:
    return tuple((name, reply.headers[name]) for name in PASSED_BACK if name in reply.headers)


def _path(name: str, version: str) -> str:
    """Of a model, as the HTTP application has it; its scope holds paths unquoted."""
    return f"/v2/models/{name}" + (f"/versions/{version}" if version else "")


def _address(context: Context) -> str:
    """The client's, of "ipv4:127.0.0.1:5000" or "ipv6:%5B::1%5D:5000"."""
    _, _, address = context.peer().partition(":")
    return str(address.rpartition(":")[0].replace("%5B", "").replace("%5D", ""))


def _snake(name: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name).lstrip("_")
