"""Routes whose endpoints take the request and give the response: nothing is injected or converted for them."""

from collections.abc import Iterable
from typing import Any

from fastapi import APIRouter
from fastapi.routing import APIRoute
from starlette.routing import request_response


class DirectRoute(APIRoute):
    """A documented route without FastAPI's machinery before its endpoint, `async (Request) -> Response`.

    Solving the dependencies of an endpoint that has none, and validating a response that is bytes already, would cost a
    prediction as much as reading its body does.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.app = request_response(self.endpoint)


def direct_router(**options: Any) -> APIRouter:
    """A router of such routes."""
    return APIRouter(route_class=DirectRoute, **options)


def path_parameters(names: Iterable[str]) -> list[dict[str, Any]]:
    """The documentation of parameters that the endpoint takes from the request itself."""
    return [{"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in names]
