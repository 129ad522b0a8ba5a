"""Routes whose endpoints take the request and give the response: nothing is injected or converted for them."""

from collections.abc import Iterable
from typing import Any

from fastapi import APIRouter, Request
from fastapi.routing import APIRoute
from starlette.routing import request_response
from starlette.types import ASGIApp, Receive, Scope, Send

from service.runtime import Runtime
from service.web.admission import Lease
from service.web.departure import answer_taken

LEASE = "probity.lease"


class DirectRoute(APIRoute):
    """A documented route without FastAPI's machinery before its endpoint, `async (Request) -> Response`.

    Solving the dependencies of an endpoint that has none, and validating a response that is bytes already, would cost a
    prediction as much as reading its body does. Each request has a lease on the room for requests, which ends when the
    client has taken its answer.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.app = _leased(request_response(self.endpoint))


def _leased(app: ASGIApp) -> ASGIApp:
    async def run(scope: Scope, receive: Receive, send: Send) -> None:
        runtime: Runtime = scope["app"].state.runtime
        with runtime.bodies.lease() as lease:
            scope[LEASE] = lease
            await app(scope, receive, send)
            await answer_taken(scope)

    return run


def lease_of(request: Request) -> Lease:
    """The request's part of the room for requests, until its answer is sent."""
    lease: Lease = request.scope[LEASE]
    return lease


def direct_router(**options: Any) -> APIRouter:
    """A router of such routes."""
    return APIRouter(route_class=DirectRoute, **options)


def path_parameters(names: Iterable[str]) -> list[dict[str, Any]]:
    """The documentation of parameters that the endpoint takes from the request itself."""
    return [{"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in names]
