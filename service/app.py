"""`create_app`: the ASGI application around the loaded models."""

import asyncio
import contextlib
import logging
import os
from collections.abc import AsyncIterator, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI, Request, Response
from fastapi.middleware.cors import CORSMiddleware
from fastapi.routing import APIRoute
from prometheus_client import CollectorRegistry
from starlette.routing import Match, Route

from .environment.opentelemetry import trace_destination
from .format.text import printable
from .http.errors import RAISED, refusal
from .http.middleware import METRICS_PATH, ApiKeys, Exchanges, Exchanging
from .http.problems import render
from .http.request_id import HEADER as ID_HEADER
from .inference.predictor import Predictor
from .models.store import ModelStore
from .monitoring.metrics import Metrics
from .oip.request import LENGTH_HEADER
from .recording.recording import Recording
from .routes import docs, operations, playground, predict, v2
from .routes import feedback as feedback_route
from .runtime import Runtime, running
from .security.api_keys import KeyRing
from .settings import Settings

if TYPE_CHECKING:
    from .monitoring.tracing import Tracing

DESCRIPTION = "Predictions that say how sure they are, and demur when they should."
VERSION = "0.1.0"
# FastAPI's own looks for providers at each request.
NO_TELEMETRY: Any = {"tracing": False, "metrics": False, "logs": False}
log = logging.getLogger("demur")


def create_app(
    predictors: Predictor | Iterable[Predictor], settings: Settings, registry: CollectorRegistry | None = None
) -> FastAPI:
    """The service of `predictors`, the first of which is the default model. Each decides by its own policy.

    `registry` receives the metrics; by default the app creates one. With `settings.watch_seconds`, the predictors'
    folders and `settings.models` are watched for changes. Raises `AuditFileError` and `SecretFileError`.
    """
    loaded = [predictors] if isinstance(predictors, Predictor) else [*predictors]
    metrics = Metrics(registry if registry is not None else CollectorRegistry())
    recording, exchanges = Recording(settings, metrics), Exchanges(metrics, settings.access_log)

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        tracing = _tracing(settings, metrics, exchanges)
        async with running(loaded, settings, metrics, recording, tracing, VERSION) as runtime:
            app.state.runtime = runtime  # from here on, a signal sets `draining`
            await _begin_loading(runtime)
            yield
            runtime.draining = True

    app = FastAPI(
        title="Demur",
        description=DESCRIPTION,
        version=VERSION,
        lifespan=lifespan,
        redirect_slashes=False,
        openapi_url=None,  # `routes.docs` serves the document and the page
        docs_url=None,
        redoc_url=None,
        telemetry=NO_TELEMETRY,
    )
    # One flat list: FastAPI would nest routers, and match each request twice.
    parts = (predict, feedback_route, v2, operations, docs, *([playground] if settings.playground else []))
    app.router.routes += [route for part in parts for route in part.router.routes]
    paths = [route.path for route in app.routes if isinstance(route, APIRoute)]
    metrics.expect(path for path in paths if path.endswith(("/predict", "/infer")))
    strict = settings.workers == 1  # of several, whoever starts them has checked the files
    files = settings.api_keys_file, settings.feedback_keys_file
    keys, own = (None if file is None else KeyRing(file, strict=strict) for file in files)
    app.state.api_keys, app.state.exchanges = keys, exchanges
    if keys is not None or own is not None:
        app.add_middleware(
            ApiKeys, keys=keys, own={feedback_route.PATH: own}, metrics=metrics, public=_public(settings)
        )
    if settings.cors_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=settings.cors_origins,
            allow_methods=["*"],
            allow_headers=["*"],
            expose_headers=["Retry-After", ID_HEADER, LENGTH_HEADER],
        )
    app.add_middleware(Exchanging, exchanges=exchanges)
    _add_error_handlers(app, metrics)
    return app


def _tracing(settings: Settings, metrics: Metrics, exchanges: Exchanges) -> "Tracing | None":
    """Raises `ValueError` for variables of OpenTelemetry with which all traces would be lost."""
    if not settings.traces or trace_destination(os.environ) is None:
        return None
    from .http.tracing import trace  # needs packages of its own
    from .monitoring.tracing import Tracing

    tracing = Tracing(VERSION, metrics.spans, metrics.spans_sent)
    exchanges.trace = partial(trace, tracing.tracer)
    return tracing


def _public(settings: Settings) -> set[str]:
    """What needs no key."""
    metrics = {METRICS_PATH} if settings.metrics_public else set()
    return metrics | (playground.PUBLIC if settings.playground else set())


async def _begin_loading(runtime: Runtime) -> None:
    """Load every bundle in the models' folder. The service answers meanwhile: a bundle that hangs must not keep it from
    saying that it lives, and what it waits for."""
    settings = runtime.settings

    def look() -> None:
        _check_default_model(runtime.store, settings)
        runtime.recording.check()

    if settings.models is None:
        look()
        return

    def check(loaded: asyncio.Task[None]) -> None:
        if loaded.cancelled():
            return
        if (error := loaded.exception()) is not None:
            log.error("%s: loading its bundles failed", settings.models, exc_info=error)
        look()

    (await runtime.repository.begin()).add_done_callback(check)


def _check_default_model(store: ModelStore, settings: Settings) -> None:
    """Log where the default model is missing, or depends on the order in which models were loaded."""
    names = sorted({model.name for model in store})
    if settings.default_model is not None and settings.default_model not in names:
        loaded = printable(", ".join(names))
        log.error("the default model %r is not loaded; loaded are: %s", settings.default_model, loaded)
    elif not names and settings.models is not None:
        later = "" if settings.watch_seconds is not None else "; DEMUR_WATCH_SECONDS would look for new ones"
        expected = f"expected NAME/manifest.json or NAME/VERSION/manifest.json in it{later}"
        log.warning("%s: no bundle can be served, every prediction is refused; %s", settings.models, expected)
    elif settings.default_model is None and len(names) > 1:
        log.warning("%r answers /predict, being the first one loaded; set DEMUR_DEFAULT_MODEL", store.default)


def _add_error_handlers(app: FastAPI, metrics: Metrics) -> None:
    async def answer(request: Request, error: Exception) -> Response:
        problem, headers = refusal(error, metrics)
        if problem.status == 405:
            allowed = ", ".join(_allowed_methods(request))
            headers, problem.detail = {"Allow": allowed}, f"Found the method {request.method:.20}, expected {allowed}."
        return render(request.scope["path"], problem, headers)

    for kind in RAISED:
        app.add_exception_handler(kind, answer)


def _allowed_methods(request: Request) -> list[str]:
    """The methods of all routes with the request's path; Starlette names only those of the first one."""
    routes = (route for route in request.app.routes if isinstance(route, Route))
    matching = [route for route in routes if route.matches(request.scope)[0] is not Match.NONE]
    return sorted({method for route in matching for method in route.methods or ()})
