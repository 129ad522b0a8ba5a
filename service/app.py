"""`create_app`: the ASGI application around the loaded models."""

import asyncio
import contextlib
import logging
import os
from collections.abc import AsyncIterator, Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI, Request, Response
from fastapi.middleware.cors import CORSMiddleware
from fastapi.routing import APIRoute
from prometheus_client import CollectorRegistry
from starlette.routing import Match, Route

from .batching import ComputeThreads
from .environment.opentelemetry import trace_destination
from .feedback.receipts import ReceiptSigner, read_secrets
from .format.text import printable
from .http.errors import RAISED, refusal
from .http.middleware import METRICS_PATH, ApiKeys, Exchanges, Exchanging
from .http.problems import render
from .inference.policy import Policy
from .inference.predictor import Predictor
from .models.cpu_share import all_threads
from .models.elsewhere import Elsewhere
from .models.feedback import Feedback
from .models.loading import load_predictor
from .models.repository import Repository
from .models.served import ServedModel
from .models.shadow import Shadow
from .models.store import ModelStore
from .models.trials import Trials
from .monitoring.audit import AuditTrail
from .monitoring.audit_file import open_audit
from .monitoring.metrics import Metrics
from .routes import docs, operations, playground, predict, v2
from .routes import feedback as feedback_route
from .runtime import Runtime
from .security.api_keys import KeyRing
from .settings import Settings

if TYPE_CHECKING:
    from .monitoring.tracing import Tracing

DESCRIPTION = "Predictions that say how sure they are, and demur when they should."
VERSION = "0.1.0"
# FastAPI's own looks for providers at each request.
NO_TELEMETRY: Any = {"tracing": False, "metrics": False, "logs": False}
# When models are closed, no client waits any more: a batch that is still computed may hang.
CLOSE_SECONDS = 2.0
log = logging.getLogger("demur")


def create_app(
    predictors: Predictor | Iterable[Predictor], settings: Settings, registry: CollectorRegistry | None = None
) -> FastAPI:
    """The service of `predictors`, the first of which is the default model. Each decides by its own policy.

    `registry` receives the metrics; by default the app creates one. With `settings.watch_seconds`, the predictors'
    folders and `settings.models` are watched for changes. Raises `AuditFileError` and `SecretFileError`.
    """
    loaded = [predictors] if isinstance(predictors, Predictor) else [*predictors]
    if settings.degrade_after_seconds is not None and not all(predictor.graph.has_plain for predictor in loaded):
        raise ValueError(
            "degrade_after_seconds: found a predictor without the plain network; make it with plain_too=True"
        )
    metrics = Metrics(registry if registry is not None else CollectorRegistry())
    audit, feedback = _audit_trail(settings, metrics), _feedback(settings)
    exchanges = Exchanges(metrics, settings.access_log)

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with _running(loaded, settings, metrics, audit, feedback) as runtime:
            app.state.runtime = runtime  # from here on, a signal sets `draining`
            if runtime.tracing is not None:
                from .http.tracing import trace  # needs packages of its own

                exchanges.trace = partial(trace, runtime.tracing.tracer)
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
    metrics.expect(route.path for route in app.routes if isinstance(route, APIRoute) and _predicts(route))
    strict = settings.workers == 1  # of several, whoever starts them has checked the files
    keys, own = (_keys(file, strict) for file in (settings.api_keys_file, settings.feedback_keys_file))
    app.state.api_keys, app.state.exchanges = keys, exchanges
    if keys is not None or own is not None:
        app.add_middleware(
            ApiKeys, keys=keys, own={feedback_route.PATH: own}, metrics=metrics, public=_public(settings)
        )
    if settings.cors_origins:
        app.add_middleware(
            CORSMiddleware, allow_origins=settings.cors_origins, allow_methods=["*"], allow_headers=["*"]
        )
    app.add_middleware(Exchanging, exchanges=exchanges)
    _add_error_handlers(app, metrics)
    return app


def _audit_trail(settings: Settings, metrics: Metrics) -> AuditTrail | None:
    """The audit trail, not started; raises `AuditFileError`."""
    if settings.audit_file is None:
        return None
    return AuditTrail(open_audit(settings.audit_file, settings.audit_bytes), metrics.audit_lost)


def _feedback(settings: Settings) -> Feedback | None:
    """Raises `SecretFileError`."""
    file = settings.feedback_secret_file
    return None if file is None else Feedback(ReceiptSigner(read_secrets(file), settings.feedback_max_age_seconds))


def _traced(settings: Settings) -> bool:
    """Raises `ValueError` for variables of OpenTelemetry with which all traces would be lost."""
    return settings.traces and trace_destination(os.environ) is not None


def _tracing(settings: Settings, metrics: Metrics) -> "Tracing | None":
    if not _traced(settings):
        return None
    from .monitoring.tracing import Tracing  # needs packages of its own

    return Tracing(VERSION, metrics.spans, metrics.spans_sent)


def _public(settings: Settings) -> set[str]:
    """What needs no key."""
    metrics = {METRICS_PATH} if settings.metrics_public else set()
    return metrics | (playground.PUBLIC if settings.playground else set())


def _keys(file: Path | None, strict: bool) -> KeyRing | None:
    return None if file is None else KeyRing(file, strict=strict)


def _predicts(route: APIRoute) -> bool:
    return "POST" in (route.methods or ()) and route.path.endswith(("/predict", "/infer"))


@contextlib.asynccontextmanager
async def _running(
    loaded: list[Predictor],
    settings: Settings,
    metrics: Metrics,
    audit: AuditTrail | None,
    feedback: Feedback | None,
) -> AsyncIterator[Runtime]:
    """Run the models and their queues; at the end, give what still runs two seconds."""
    if audit is not None:
        audit.start()
        audit.event("started", service=VERSION, settings=settings.described())
    compute_threads = ComputeThreads(all_threads(settings))
    store = ModelStore(settings.default_model)
    folders = [predictor.path for predictor in loaded]
    trials = Trials(settings)
    repository = Repository(
        store,
        lambda folder: load_predictor(folder, settings, trials),
        lambda predictor: ServedModel(predictor, settings, compute_threads, metrics),
        metrics,
        folders,
        settings.models,
        None if audit is None else audit.event,
    )
    repository.adopt(loaded)
    elsewhere = Elsewhere(settings, repository.note_elsewhere)
    watching = asyncio.create_task(_watch(repository, elsewhere, settings))
    choice = settings.shadow_choice
    shadow = (
        None
        if choice is None
        else Shadow(choice, Policy.of(settings), store, metrics, settings.compute_timeout_seconds)
    )
    tracing = _tracing(settings, metrics)
    runtime = Runtime(
        settings, metrics, store, repository, elsewhere, compute_threads, audit, feedback, shadow, tracing
    )
    if shadow is not None:
        shadow.start()
    try:
        yield runtime
    finally:
        await runtime.close()
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                await repository.stop_loading()
                await repository.close()
        except TimeoutError:
            log.error("A batch is still computed after %g s and is left behind", CLOSE_SECONDS)
        trials.close()
        compute_threads.shutdown()
        if shadow is not None:
            shadow.close()
        if tracing is not None:
            await tracing.close(CLOSE_SECONDS)
        if audit is not None:
            audit.event("stopped")
            audit.close()


async def _begin_loading(runtime: Runtime) -> None:
    """Load every bundle in the models' folder. The service answers meanwhile: a bundle that hangs must not keep it from
    saying that it lives, and what it waits for."""
    settings = runtime.settings

    def look() -> None:
        _check_default_model(runtime.store, settings)
        if runtime.shadow is not None:
            runtime.shadow.check()

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


async def _watch(repository: Repository, elsewhere: Elsewhere, settings: Settings) -> None:
    if (seconds := settings.watch_seconds) is not None:
        await asyncio.gather(repository.watch(seconds), elsewhere.watch(seconds))


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
