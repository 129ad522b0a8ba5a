"""Health, metrics and the model card: never queue behind inference."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Response
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from service.manifest import to_json
from service.problems import ProblemError
from service.runtime import Runtime, get_runtime
from service.schemas import Health

router = APIRouter()
RuntimeDependency = Annotated[Runtime, Depends(get_runtime)]


@router.get("/health/live")
async def live() -> Health:
    """The process runs its event loop. Restart it when this fails."""
    return Health(status="live")


@router.get("/health/ready")
async def ready(runtime: RuntimeDependency) -> Health:
    """The model is loaded and requests are welcome. Send no traffic when this fails."""
    if runtime.draining:
        raise ProblemError(503, "draining", "The service is shutting down.")
    return Health(status="ready")


@router.get("/model")
async def model(runtime: RuntimeDependency) -> dict[str, Any]:
    """The model card: the bundle's manifest and its digest."""
    card: dict[str, Any] = to_json(runtime.predictor.manifest)
    return {"digest": runtime.predictor.digest, **card}


@router.get("/metrics", response_class=Response)
async def metrics(runtime: RuntimeDependency) -> Response:
    """Prometheus text exposition."""
    return Response(generate_latest(runtime.metrics.registry), headers={"Content-Type": CONTENT_TYPE_LATEST})
