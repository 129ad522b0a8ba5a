"""Routes whose endpoints take the request and return the response, without dependencies or conversions."""

from collections.abc import Awaitable, Callable, Iterable
from functools import cached_property
from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.routing import APIRoute
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from ..http.admission import LEASE
from ..http.disconnect import response_taken
from ..runtime import Runtime


class DirectRoute(APIRoute):
    """A documented route that calls its endpoint, `async (Request) -> Response`, without FastAPI's machinery.

    Resolving dependencies that do not exist, and validating a response that is bytes already, would cost a prediction
    as much as reading its body. The application's exception handlers answer errors. Each request has a lease on the
    byte budget, which ends when the client has taken the response.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.app = _leased(self.endpoint)


class _Headers(Headers):
    """Starlette's raise and catch an error for each header that is not there, as most are."""

    def get(self, key: str, default: Any = None) -> Any:
        """The first one of this name."""
        wanted = key.lower().encode("latin-1")
        return next((value.decode("latin-1") for name, value in self._list if name == wanted), default)


class _Request(Request):
    @cached_property
    def headers(self) -> Headers:
        return _Headers(scope=self.scope)


def _leased(endpoint: Callable[[Request], Awaitable[Response]]) -> ASGIApp:
    async def run(scope: Scope, receive: Receive, send: Send) -> None:
        runtime: Runtime = scope["app"].state.runtime
        with runtime.byte_budget.lease() as lease:
            scope[LEASE] = lease
            response = await endpoint(_Request(scope, receive, send))
            await response(scope, receive, send)
            await response_taken(scope)

    return run


def direct_router(**options: Any) -> APIRouter:
    """A router of `DirectRoute`s."""
    return APIRouter(route_class=DirectRoute, **options)


def path_parameters(names: Iterable[str]) -> list[dict[str, Any]]:
    """The OpenAPI description of path parameters, which a `DirectRoute` cannot derive from its endpoint."""
    return [{"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in names]
