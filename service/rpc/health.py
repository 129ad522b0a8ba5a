"""`grpc.health.v1.Health`: what load balancers and Kubernetes ask, as `/health/ready` answers.

`Check` alone: a client that watches holds a call for ever, and does without where the server says that it cannot.
"""

from typing import Any

import grpc
from grpc_health.v1 import health_pb2

from .in_process import InProcess
from .protocol import SERVICE

HEALTH = "grpc.health.v1.Health"
KNOWN = frozenset({"", SERVICE})
Response = health_pb2.HealthCheckResponse


class Health:
    """Of the whole service, called "" or by the name of the inference service."""

    def __init__(self, http: InProcess) -> None:
        self._http = http

    def handler(self) -> Any:
        """For `grpc.aio.Server.add_generic_rpc_handlers`."""
        check = grpc.unary_unary_rpc_method_handler(
            self._check, health_pb2.HealthCheckRequest.FromString, Response.SerializeToString
        )
        return grpc.method_handlers_generic_handler(HEALTH, {"Check": check})

    async def _check(self, request: Any, context: Any) -> Any:
        if request.service not in KNOWN:
            context.set_code(grpc.StatusCode.NOT_FOUND)
            context.set_details(f"found no service {request.service!r:.100}")
            return Response()
        reply = await self._http.ask("GET", "/health/ready", {})
        return Response(status=Response.SERVING if reply.status == 200 else Response.NOT_SERVING)
