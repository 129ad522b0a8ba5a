"""Health, metrics and the model cards: never queue behind inference."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Response
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest, multiprocess

from service.manifest import to_json
from service.metrics import several_processes
from service.problems import ProblemError
from service.runtime import Runtime, get_runtime
from service.schemas import Health, ModelList, ModelVersion
from service.served import ServedModel

router = APIRouter(tags=["operations"])
RuntimeDependency = Annotated[Runtime, Depends(get_runtime)]


@router.get("/health/live")
async def live(runtime: RuntimeDependency) -> Health:
    """The process can do its work. Restart it when this fails."""
    if not runtime.alive:
        raise ProblemError(503, "batcher_failed", "The service computes nothing any more; the log says why.")
    return Health(status="live")


@router.get("/health/ready")
async def ready(runtime: RuntimeDependency) -> Health:
    """A model is loaded and requests are welcome. Send no traffic when this fails."""
    if runtime.draining:
        raise ProblemError(503, "draining", "The service is shutting down.")
    if not runtime.ready:
        raise ProblemError(503, "not_ready", "No model is loaded, or the service computes nothing any more.")
    return Health(status="ready")


@router.get("/models")
async def models(runtime: RuntimeDependency) -> ModelList:
    """Every loaded version of every model."""
    default = runtime.store.latest(runtime.store.default)
    return ModelList(
        models=[
            ModelVersion(name=model.name, version=model.version, digest=model.digest, default=model is default)
            for model in runtime.store
        ]
    )


@router.get("/model")
async def model(runtime: RuntimeDependency) -> dict[str, Any]:
    """The default model's card: its bundle's manifest and digest."""
    return _card(runtime.store.find())


@router.get("/models/{name}")
async def model_by(name: str, runtime: RuntimeDependency) -> dict[str, Any]:
    """The card of the latest version of the model `name`."""
    return _card(runtime.store.find(name))


@router.get("/models/{name}/versions/{version}")
async def model_by_version(name: str, version: str, runtime: RuntimeDependency) -> dict[str, Any]:
    """The card of this version of the model `name`."""
    return _card(runtime.store.find(name, version))


def _card(served: ServedModel) -> dict[str, Any]:
    card: dict[str, Any] = to_json(served.manifest)
    return {"digest": served.digest, **card}


@router.get("/metrics", response_class=Response)
async def metrics(runtime: RuntimeDependency) -> Response:
    """Prometheus text exposition, of all worker processes."""
    for served in runtime.store:
        served.metrics.waiting(served.queue_rows)
    registry = runtime.metrics.registry
    if several_processes():
        registry = CollectorRegistry()
        multiprocess.MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
    return Response(generate_latest(registry), headers={"Content-Type": CONTENT_TYPE_LATEST})
