"""Routes whose endpoints take the request and return the response, without dependencies or conversions."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from functools import cached_property, partial
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.routing import APIRoute
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from ..batching.errors import SLOW_SECONDS
from ..batching.room import PATIENCE_SECONDS
from ..data_plane import Call
from ..http.admission import LEASE, Lease, lease_of
from ..http.bodies import read_body
from ..http.deadline import RequestDeadline
from ..http.disconnect import CancelOnDisconnect, response_taken
from ..http.exchange import exchange_of
from ..http.problems import ProblemError
from ..http.request_id import PARAMETER as ID_PARAMETER
from ..http.route_key import PARAMETER as ROUTE_PARAMETER
from ..runtime import Runtime, runtime_of

HEADERS = [ID_PARAMETER, ROUTE_PARAMETER]  # of a prediction


class DirectRoute(APIRoute):
    """A documented route that calls its endpoint, `async (Request) -> Response`, without FastAPI's machinery.

    Resolving dependencies that do not exist, and validating a response that is bytes already, would cost a prediction
    as much as reading its body. The application's exception handlers answer errors. Each request has a lease on the
    byte budget, which ends when the client has taken the response.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.app = _leased(self.endpoint)


class RequestHeaders(Headers):
    """Starlette's raise and catch an error for each header that is not there, as most are."""

    def get(self, key: str, default: Any = None) -> Any:
        """The first one of this name."""
        wanted = key.lower().encode("latin-1")
        return next((value.decode("latin-1") for name, value in self._list if name == wanted), default)


class _Request(Request):
    @cached_property
    def headers(self) -> Headers:
        return RequestHeaders(scope=self.scope)


def _leased(endpoint: Callable[[Request], Awaitable[Response]]) -> ASGIApp:
    async def run(scope: Scope, receive: Receive, send: Send) -> None:
        runtime: Runtime = scope["app"].state.runtime
        with runtime.byte_budget.lease() as lease:
            scope[LEASE] = lease
            response = await endpoint(_Request(scope, receive, send))
            await response(scope, receive, send)
            await response_taken(scope)

    return run


def call_of(request: Request) -> Call:
    """The request of a `DirectRoute`, for the data plane."""
    runtime, lease, path = runtime_of(request), lease_of(request), request.path_params
    read, attended = partial(_read, request, runtime, lease), partial(CancelOnDisconnect, request)
    named = path.get("name"), path.get("version")
    return Call(runtime, exchange_of(request), request.headers, lease, *named, read, attended)


async def _read(request: Request, runtime: Runtime, lease: Lease, deadline: RequestDeadline) -> bytes:
    """The body; raises what `read_body` raises, and `ProblemError` (504) where the client's own deadline, sooner than
    the operator's, passes before its body is there."""
    settings = runtime.settings
    limit, seconds, threads = settings.max_body_bytes, settings.client_timeout_seconds, runtime.decoding.threads
    if (left := deadline.latest - asyncio.get_running_loop().time()) > SLOW_SECONDS:
        seconds = min(seconds, left)  # what is not there by then comes too slowly: no failure of the service
    reading = read_body(request, limit, seconds, lease, threads)
    try:
        if deadline.at >= deadline.latest:
            return await reading
        async with asyncio.timeout_at(deadline.at):
            return await reading
    except ProblemError as error:
        if error.problem.status == 429:  # its client may ask again at once, as may those who find no room in a queue
            lease.release()
            await asyncio.sleep(min(PATIENCE_SECONDS, deadline.at - asyncio.get_running_loop().time()))
        raise
    except TimeoutError:
        detail = "The deadline passed while the body arrived."
        raise ProblemError(504, "deadline_client", detail, headers={"Connection": "close"}) from None


def direct_router(**options: Any) -> APIRouter:
    """A router of `DirectRoute`s."""
    return APIRouter(route_class=DirectRoute, **options)


def path_parameters(names: Iterable[str]) -> list[dict[str, Any]]:
    """The OpenAPI description of path parameters, which a `DirectRoute` cannot derive from its endpoint."""
    return [{"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in names]
