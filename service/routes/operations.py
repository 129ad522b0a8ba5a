"""Health, metrics and the model cards: never queue behind inference."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Response
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest, multiprocess

from service.format.manifest import to_json
from service.metrics import several_processes
from service.models.served import ServedModel
from service.runtime import Runtime, get_runtime
from service.schemas import Health, ModelList, ModelVersion, Problem
from service.web.problems import MEDIA_TYPE, ProblemError

router = APIRouter(tags=["operations"])
RuntimeDependency = Annotated[Runtime, Depends(get_runtime)]


def _refusal(status: int, text: str) -> dict[int | str, dict[str, Any]]:
    return {status: {"description": text, "content": {MEDIA_TYPE: {"schema": Problem.model_json_schema()}}}}


KEY = _refusal(401, "An API key is needed.")
MISSING = KEY | _refusal(404, "No such model.")
UNFIT = _refusal(503, "The service cannot do its work, or is shutting down.")


@router.head("/health/live", include_in_schema=False)
@router.get("/health/live", responses=UNFIT)
async def live(runtime: RuntimeDependency) -> Health:
    """The process can do its work. Restart it when this fails."""
    if not runtime.alive:
        raise ProblemError(503, "batcher_failed", "The service computes nothing any more; the log says why.")
    return Health(status="live")


@router.head("/health/ready", include_in_schema=False)
@router.get("/health/ready", responses=UNFIT)
async def ready(runtime: RuntimeDependency) -> Health:
    """A model is loaded and requests are welcome. Send no traffic when this fails."""
    if runtime.draining:
        raise ProblemError(503, "draining", "The service is shutting down.")
    if not runtime.ready:
        raise ProblemError(503, "not_ready", "No model is loaded, or the service computes nothing any more.")
    return Health(status="ready")


@router.get("/models", responses=KEY)
async def models(runtime: RuntimeDependency) -> ModelList:
    """Every loaded version of every model."""
    default = runtime.store.latest(runtime.store.default)
    return ModelList(
        models=[
            ModelVersion(name=model.name, version=model.version, digest=model.digest, default=model is default)
            for model in runtime.store
        ]
    )


@router.get("/model", responses=MISSING)
async def model(runtime: RuntimeDependency) -> dict[str, Any]:
    """The default model's card: its bundle's manifest and digest."""
    return _card(runtime.store.find())


@router.get("/models/{name}", responses=MISSING)
async def model_by(name: str, runtime: RuntimeDependency) -> dict[str, Any]:
    """The card of the latest version of the model `name`."""
    return _card(runtime.store.find(name))


@router.get("/models/{name}/versions/{version}", responses=MISSING)
async def model_by_version(name: str, version: str, runtime: RuntimeDependency) -> dict[str, Any]:
    """The card of this version of the model `name`."""
    return _card(runtime.store.find(name, version))


def _card(served: ServedModel) -> dict[str, Any]:
    card: dict[str, Any] = to_json(served.manifest)
    return {"digest": served.digest, **card}


@router.get("/metrics", response_class=Response, responses=KEY)
async def metrics(runtime: RuntimeDependency) -> Response:
    """Prometheus text exposition, of all worker processes."""
    for served in runtime.store:
        served.metrics.waiting(served.queue_rows)
        served.metrics.count()
    registry = runtime.metrics.registry
    if several_processes():
        registry = CollectorRegistry()
        multiprocess.MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
    return Response(generate_latest(registry), headers={"Content-Type": CONTENT_TYPE_LATEST})
