"""The methods of `inference.GRPCInferenceService`, and gRPC's own health."""

import contextlib
from collections.abc import Awaitable
from typing import Any

import grpc
from grpc_health.v1 import health_pb2

from .. import data_plane
from ..http.deadline import RequestDeadline
from ..http.errors import refusal
from ..http.problems import ProblemError
from ..models.store import ModelNotFound
from ..routes import operations, v2
from ..runtime import Runtime
from .calls import Call, Calls, Method
from .codec import binder
from .protocol import SERVICE, Protocol

HEALTH = "grpc.health.v1.Health"
HealthRequest, HealthResponse = health_pb2.HealthCheckRequest, health_pb2.HealthCheckResponse
MODEL = "/v2/models/{name}"


class Servicer:
    """version: of the service."""

    def __init__(self, runtime: Runtime, protocol: Protocol, version: str) -> None:
        self._runtime, self._protocol, self._version = runtime, protocol, version

    def handlers(self, calls: Calls) -> list[Any]:
        """For `grpc.aio.Server.add_generic_rpc_handlers`.

        Of gRPC's health `Check` alone: a client that watches holds a call for ever, and does without where the server
        says that it cannot.
        """
        named = {f"{name}Request": self._protocol[f"{name}Request"] for name in ("ModelReady", "ModelMetadata")}
        asked = self._protocol["ModelInferRequest"]
        methods = {
            "ServerLive": Method("GET", "/v2/health/live", None, self.server_live, public=True),
            "ServerReady": Method("GET", "/v2/health/ready", None, self.server_ready, public=True),
            "ServerMetadata": Method("GET", "/v2", None, self.server_metadata),
            "ModelReady": Method("GET", f"{MODEL}/ready", named["ModelReadyRequest"], self.model_ready),
            "ModelMetadata": Method("GET", MODEL, named["ModelMetadataRequest"], self.model_metadata),
            "ModelInfer": Method("POST", f"{MODEL}/infer", asked, self.model_infer),
        }
        health = Method("GET", "/health/ready", HealthRequest, self.check, public=True)
        ours = {name: calls.handler(method) for name, method in methods.items()}
        return [
            grpc.method_handlers_generic_handler(SERVICE, ours),
            grpc.method_handlers_generic_handler(HEALTH, {"Check": calls.handler(health)}),
        ]

    async def server_live(self, _: None, call: Call) -> Any:
        """Whether the process can do its work."""
        return self._protocol["ServerLiveResponse"](live=await self._holds(call, operations.live(self._runtime)))

    async def server_ready(self, _: None, call: Call) -> Any:
        """Whether requests are welcome."""
        return self._protocol["ServerReadyResponse"](ready=await self._holds(call, operations.ready(self._runtime)))

    async def check(self, request: Any, call: Call) -> Any:
        """Of the whole service, called "" or by the name of the inference service, as `/health/ready` answers."""
        if request.service not in ("", SERVICE):
            raise ProblemError(404, "not_found", f"found no service {request.service!r:.100}")
        holds = await self._holds(call, operations.ready(self._runtime))
        return HealthResponse(status=HealthResponse.SERVING if holds else HealthResponse.NOT_SERVING)

    async def model_ready(self, request: Any, call: Call) -> Any:
        """Whether the model is there and computes."""
        name, version = _named(call, request.name, request.version, "/ready")
        holds = await self._holds(call, v2.check_ready(self._runtime, name, version))
        return self._protocol["ModelReadyResponse"](ready=holds)

    async def server_metadata(self, _: None, __: Call) -> Any:
        """The service's name and version."""
        return self._protocol["ServerMetadataResponse"](name=v2.NAME, version=self._version)

    async def model_metadata(self, request: Any, call: Call) -> Any:
        """The model's tensors, and its loaded versions."""
        name, version = _named(call, request.name, request.version, "")
        found = v2.described(self._runtime, name, version)
        del found["parameters"]  # which this message has no room for
        return self._protocol["ModelMetadataResponse"](**found)

    async def model_infer(self, request: Any, call: Call) -> bytes:
        """The outputs asked for."""

        async def read(_: RequestDeadline) -> bytes:
            return call.data

        model, limits = _named(call, request.model_name, request.model_version, "/infer"), self._runtime.decoding.limits
        asked = data_plane.Call(
            self._runtime, call.exchange, call.headers, call.lease, *model, read, contextlib.nullcontext, kept=True
        )
        answer = await data_plane.infer(asked, binder(self._protocol, request, call.headers, limits))
        return answer.body

    async def _holds(self, call: Call, check: Awaitable[object]) -> bool:
        """Whether the check raises nothing; what it raises is counted as over HTTP."""
        try:
            await check
        except (ProblemError, ModelNotFound) as error:
            problem, _ = refusal(error, self._runtime.metrics)
            call.exchange.status = problem.status
            return False
        return True


def _named(call: Call, name: str, version: str, rest: str) -> tuple[str, str | None]:
    """The model; its name is in what is counted and logged from now on."""
    route = f"{MODEL}/versions/{{version}}{rest}" if version else MODEL + rest
    call.exchange.route, call.exchange.path = route, route.format(name=name, version=version)
    return name, version or None
