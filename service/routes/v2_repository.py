"""/v2/repository: list bundles, and load and unload them where the operator allows it."""

from typing import Any, TypeVar

from fastapi import APIRouter, Request, Response

from probity.service.codec.json_limits import JsonLimits
from probity.service.http.bodies import read_body
from probity.service.http.problems import ProblemError
from probity.service.oip import RequestError
from probity.service.oip.parsing import parse, read_json
from probity.service.oip.schemas_models import IndexEntry, IndexRequest, LoadRequest, UnloadRequest, inlined
from probity.service.routes.v2_errors import errors
from probity.service.runtime import Runtime, runtime_of

router = APIRouter(prefix="/v2/repository", tags=["open inference protocol"])
Json = dict[str, Any]
C = TypeVar("C", IndexRequest, LoadRequest, UnloadRequest)
MAX_COMMAND_BYTES, COMMAND_BOUNDS = 64 * 2**10, JsonLimits(1000, 1000, 1000)
COMMAND_ERRORS = errors(400, 401, 408, 413, 415, 422, 429)


def _command(model: type[IndexRequest | LoadRequest]) -> Json:
    return {"requestBody": {"required": False, "content": {"application/json": {"schema": inlined(model)}}}}


@router.post(
    "/index",
    response_model=list[IndexEntry],
    responses=COMMAND_ERRORS,
    openapi_extra=_command(IndexRequest),
)
async def index(request: Request) -> list[Json]:
    """Every bundle's folder, loaded or not; with `ready` true, only what is served."""
    runtime = runtime_of(request)
    only_ready = (await _read_command(IndexRequest, request, runtime)).ready
    shows_reasons = runtime.settings.repository_api  # they name the operator's folders and keys
    return [
        {**vars(entry), "reason": entry.reason if shows_reasons else ""}
        for entry in runtime.repository.index()
        if entry.state == "READY" or not only_ready
    ]


LOADING: Json = {
    "response_class": Response,
    "responses": {
        **COMMAND_ERRORS,
        403: {**COMMAND_ERRORS["default"], "description": "The operator does not allow it."},
        404: {**COMMAND_ERRORS["default"], "description": "No such model."},
    },
    "openapi_extra": _command(LoadRequest),
}


@router.post("/models/{name}/load", **LOADING)
async def load(name: str, request: Request) -> Response:
    """Load the model from its folder, again or for the first time; a bad bundle leaves the old one serving."""
    runtime = _allowed(request)
    for key in (await _read_command(LoadRequest, request, runtime)).parameters or ():
        if key == "config" or key.startswith("file:"):
            expected = "none: a model is loaded as its bundle is; put another bundle in its place"
            raise RequestError(f"parameters.{key}"[:100], f"the parameter {key!r:.60}", expected)
    await runtime.repository.load(name)
    return Response()


@router.post("/models/{name}/unload", **LOADING)
async def unload(name: str, request: Request) -> Response:
    """Serve the model no longer; requests under way are answered."""
    runtime = _allowed(request)
    await _read_command(UnloadRequest, request, runtime)
    await runtime.repository.unload(name)
    return Response()


def _allowed(request: Request) -> Runtime:
    runtime = runtime_of(request)
    if not runtime.settings.repository_api:
        detail = "Loading and unloading over HTTP is off; the operator allows it with PROBITY_REPOSITORY_API=true."
        raise ProblemError(403, "repository_api", detail)
    origin = request.headers.get("origin")
    if origin is not None and origin not in runtime.settings.cors_origins:
        # A browser sends a request of a foreign page, and only keeps the response from that page.
        detail = f"Found the origin {origin!r:.100}, expected none, or one of PROBITY_CORS_ORIGINS."
        raise ProblemError(403, "origin", detail, field="Origin", found=origin[:100])
    return runtime


async def _read_command(model: type[C], request: Request, runtime: Runtime) -> C:
    """The small JSON object that may come with a command, whatever its media type."""
    settings = runtime.settings
    with runtime.byte_budget.lease() as lease:
        limit = min(MAX_COMMAND_BYTES, settings.max_body_bytes)
        body = await read_body(request, limit, settings.body_timeout_seconds, lease, runtime.body_threads)
    return parse(model, read_json(body, COMMAND_BOUNDS) if body.strip() else {})
