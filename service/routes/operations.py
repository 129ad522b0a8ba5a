"""Health, metrics and model cards; none of them waits for inference."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request, Response

from ..codec.answers import rule_json
from ..format.manifest_json import to_json
from ..http.problems import MEDIA_TYPE, ProblemError
from ..models.served import ServedModel
from ..monitoring.exposition import Form
from ..runtime import Runtime, get_runtime
from ..schemas import Health, ModelList, ModelVersion, Problem

router = APIRouter(tags=["operations"])
MAX_NAMED = 10
RuntimeDependency = Annotated[Runtime, Depends(get_runtime)]


def _error(status: int, text: str) -> dict[int | str, dict[str, Any]]:
    return {status: {"description": text, "content": {MEDIA_TYPE: {"schema": Problem.model_json_schema()}}}}


KEY = _error(401, "An API key is needed.")
MISSING = KEY | _error(404, "No such model.")
UNFIT = _error(503, "The service cannot do its work, or is shutting down.")


@router.head("/health/live", include_in_schema=False)
@router.get("/health/live", responses=UNFIT)
async def live(runtime: RuntimeDependency) -> Health:
    """The process can do its work. Restart it when this fails."""
    check_computes(runtime)
    if not runtime.alive:
        raise ProblemError(503, "batcher_failed", "The service computes nothing any more; the log says why.")
    return Health(status="live")


def check_computes(runtime: Runtime) -> None:
    """Raises `ProblemError` (503) where a batch hangs."""
    if runtime.hangs:
        seconds = runtime.compute_threads.oldest_seconds
        detail = f"A batch has been computed for {seconds:.0f} seconds and is taken to hang."
        raise ProblemError(503, "compute_hangs", detail)


@router.head("/health/ready", include_in_schema=False)
@router.get("/health/ready", responses=UNFIT)
async def ready(runtime: RuntimeDependency) -> Health:
    """The models that the operator demands are loaded, and requests are welcome. Send no traffic when this fails."""
    if runtime.draining:
        raise ProblemError(503, "draining", "The service is shutting down.")
    check_computes(runtime)
    settings, loading = runtime.settings, runtime.store.loading
    if not runtime.ready:
        detail = (
            "No model is loaded that answers" if not runtime.store.answers else "The service computes nothing any more"
        )
        detail += "; the operator's log says why."
        raise ProblemError(503, "loading" if loading else "not_ready", detail)
    if missing := runtime.repository.missing(settings.ready_requires, settings.default_model):
        more = f" and {len(missing) - MAX_NAMED} more" if len(missing) > MAX_NAMED else ""
        detail = f"Not loaded: {', '.join(missing[:MAX_NAMED])}{more}. The operator's log has the reasons."
        raise ProblemError(503, "loading" if loading else "models_missing", detail)
    return Health(status="ready")


@router.head("/models", include_in_schema=False)
@router.get("/models", responses=KEY)
async def models(runtime: RuntimeDependency) -> ModelList:
    """Every loaded version of every model."""
    default = runtime.store.answering(runtime.store.default)
    return ModelList(
        models=[
            ModelVersion(name=model.name, version=model.version, digest=model.digest, default=model is default)
            for model in runtime.store
        ]
    )


@router.head("/model", include_in_schema=False)
@router.get("/model", responses=MISSING)
async def model(runtime: RuntimeDependency) -> dict[str, Any]:
    """The default model's card: its bundle's manifest and digest."""
    return _card(runtime.store.find())


@router.head("/models/{name}", include_in_schema=False)
@router.get("/models/{name}", responses=MISSING)
async def model_by(name: str, runtime: RuntimeDependency) -> dict[str, Any]:
    """The card of the version of the model `name` that answers: the one that is pinned, or the latest."""
    return _card(runtime.store.find(name))


@router.head("/models/{name}/versions/{version}", include_in_schema=False)
@router.get("/models/{name}/versions/{version}", responses=MISSING)
async def model_by_version(name: str, version: str, runtime: RuntimeDependency) -> dict[str, Any]:
    """The card of this version of the model `name`."""
    return _card(runtime.store.find(name, version))


def _card(served: ServedModel) -> dict[str, Any]:
    card: dict[str, Any] = to_json(served.manifest)
    return {"digest": served.digest, **card, "decision": rule_json(served.predictor.decision)}


@router.head("/metrics", include_in_schema=False)
@router.get("/metrics", response_class=Response, responses=KEY)
async def metrics(request: Request, runtime: RuntimeDependency) -> Response:
    """Prometheus text exposition, or OpenMetrics for those that accept it, of all worker processes; in gzip for those
    that accept it."""
    form = Form.wanted(request.headers.get("accept", ""), request.headers.get("accept-encoding", ""))
    headers = {"Content-Type": form.content_type, "Vary": "Accept, Accept-Encoding"}
    if form.compressed:
        headers["Content-Encoding"] = "gzip"
    return Response(await runtime.scrape.text(form), headers=headers)
