"""/v2, the Open Inference Protocol of KServe and Triton: health and metadata; `v2_infer` has the rest."""

from collections.abc import Callable
from typing import Any

from fastapi import APIRouter, Request

from ..http.problems import ProblemError
from ..oip.metadata import metadata
from ..oip.schemas import Live, ModelMetadata, ModelReady, Ready, ServerMetadata
from ..runtime import Runtime, runtime_of
from . import operations, v2_infer
from .direct import DirectRoute, path_parameters
from .v2_errors import errors

router = APIRouter(prefix="/v2", tags=["open inference protocol"])
Json = dict[str, Any]
Endpoint = Callable[..., Any]
MODEL, VERSION = "/models/{name}", "/models/{name}/versions/{version}"
NOT_READY = errors(401, 503)
NAME = "demur"


def _of_model(path: str, method: str = "GET", **options: Any) -> Callable[[Endpoint], Endpoint]:
    """Register under the model's name, and under name and version; the endpoint reads both from the request."""
    extra = options.pop("openapi_extra", {})

    def register(endpoint: Endpoint) -> Endpoint:
        for base, names in ((MODEL, ["name"]), (VERSION, ["name", "version"])):
            described = {**extra, "parameters": [*path_parameters(names), *extra.get("parameters", [])]}
            router.add_api_route(base + path, endpoint, methods=[method], openapi_extra=described, **options)
        return endpoint

    return register


# Starlette tries routes in order: the most frequent one comes first.
_of_model("/infer", "POST", route_class_override=DirectRoute, **v2_infer.DOCUMENTED)(v2_infer.infer)


@router.head("", include_in_schema=False)
@router.get("", response_model=ServerMetadata, responses=errors(401))
async def server(request: Request) -> Json:
    """The service's name and version, and which extensions of the protocol it has."""
    return {"name": NAME, "version": request.app.version, "extensions": ["binary_tensor_data"]}


@router.head("/health/live", include_in_schema=False)
@router.get("/health/live", responses=NOT_READY)
async def live(request: Request) -> Live:
    """As `/health/live`."""
    await operations.live(runtime_of(request))
    return Live()


@router.head("/health/ready", include_in_schema=False)
@router.get("/health/ready", responses=NOT_READY)
async def ready(request: Request) -> Ready:
    """As `/health/ready`."""
    await operations.ready(runtime_of(request))
    return Ready()


@_of_model("", "HEAD", include_in_schema=False)
@_of_model("", response_model=ModelMetadata, responses=errors(401, 404))
async def model(request: Request) -> Json:
    """The model's tensors, and its loaded versions."""
    named = request.path_params
    return described(runtime_of(request), named["name"], named.get("version"))


def described(runtime: Runtime, name: str, version: str | None) -> Json:
    """The model's metadata; raises `ModelNotFound`."""
    served = runtime.store.find(name, version)
    return metadata(served.predictor, runtime.store.versions(served.name))


@_of_model("/ready", "HEAD", include_in_schema=False)
@_of_model("/ready", response_model=ModelReady, responses=errors(401, 404, 503))
async def model_ready(request: Request) -> ModelReady:
    """The model is loaded and computes, and the service is not shutting down."""
    named = request.path_params
    return await check_ready(runtime_of(request), named["name"], named.get("version"))


async def check_ready(runtime: Runtime, name: str, version: str | None) -> ModelReady:
    """Raises `ModelNotFound`, and `ProblemError` (503) where the model takes no requests."""
    served = runtime.store.find(name, version)
    if runtime.draining:
        raise ProblemError(503, "draining", "The service is shutting down.")
    operations.check_computes(runtime)
    if not served.alive:
        raise ProblemError(503, "batcher_failed", "The model computes nothing any more; the log says why.")
    return ModelReady(name=served.name)
