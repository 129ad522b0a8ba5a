"""create_app: the application around the loaded models."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Iterable

from fastapi import FastAPI, Request, Response
from fastapi.middleware.cors import CORSMiddleware
from prometheus_client import CollectorRegistry
from starlette.exceptions import HTTPException

from service.api_keys import KeyRing
from service.batching import Workers
from service.metrics import Metrics
from service.models.cpu_share import worker_count
from service.models.loading import load_predictor
from service.models.repository import Repository
from service.models.served import ServedModel
from service.models.store import ModelStore
from service.predictor import Predictor
from service.routes import operations, predict, v2, v2_repository
from service.runtime import Runtime
from service.settings import Settings
from service.web.middleware import ApiKeys, RequestMetrics, SafeHeaders, with_safe_headers
from service.web.problems import render
from service.web.refusals import TRANSLATIONS, refusal

DESCRIPTION = "Predictions that say how sure they are, and say no when they should."
VERSION = "0.1.0"
log = logging.getLogger("probity")


def create_app(
    predictors: Predictor | Iterable[Predictor], settings: Settings, registry: CollectorRegistry | None = None
) -> FastAPI:
    """The service of `predictors`, the first of which is the default model.

    `registry` receives the metrics; without one, the app has its own. With `settings.watch_seconds`, the folders they
    came from and `settings.models` are watched.
    """
    loaded = [predictors] if isinstance(predictors, Predictor) else [*predictors]
    if settings.degrade_after_seconds is not None and not all(predictor.has_plain for predictor in loaded):
        raise ValueError(
            "degrade_after_seconds: found a predictor without the plain network; make it with plain_too=True"
        )
    metrics = Metrics(registry if registry is not None else CollectorRegistry())

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with _running(loaded, settings, metrics) as runtime:
            app.state.runtime = runtime
            yield
            runtime.draining = True

    app = FastAPI(title="Probity", description=DESCRIPTION, version=VERSION, lifespan=lifespan)
    # Into one list, where FastAPI would nest routers and look for each request's route twice.
    app.router.routes += [route for part in (predict, v2, v2_repository, operations) for route in part.router.routes]
    if settings.api_keys_file is not None:
        keys = KeyRing(settings.api_keys_file)
        app.add_middleware(ApiKeys, keys=keys, metrics=metrics, metrics_public=settings.metrics_public)
    if settings.cors_origins:
        app.add_middleware(
            CORSMiddleware, allow_origins=settings.cors_origins, allow_methods=["*"], allow_headers=["*"]
        )
    app.add_middleware(SafeHeaders)
    app.add_middleware(RequestMetrics, metrics=metrics)
    _translate_errors(app, metrics)
    return app


@contextlib.asynccontextmanager
async def _running(loaded: list[Predictor], settings: Settings, metrics: Metrics) -> AsyncIterator[Runtime]:
    """The models behind their queues; at the end, what was admitted is computed."""
    workers = Workers(worker_count(settings))
    store = ModelStore(settings.default_model)
    folders = [predictor.path for predictor in loaded]
    repository = Repository(
        store,
        lambda folder: load_predictor(folder, settings),
        lambda predictor: ServedModel(predictor, settings, workers, metrics),
        metrics,
        folders,
        settings.models,
    )
    repository.adopt(loaded)
    if settings.models is not None:
        await repository.refresh()
    _warn_of_the_default(store, settings)
    watching = asyncio.create_task(_watch(repository, settings))
    try:
        yield Runtime(settings, metrics, store, repository, workers)
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
        await repository.close()
        workers.shutdown()


def _warn_of_the_default(store: ModelStore, settings: Settings) -> None:
    """Which model `/predict` means must not depend on when this process was started."""
    names = sorted({model.name for model in store})
    if settings.default_model is not None and settings.default_model not in names:
        log.error("the default model %r is not loaded; loaded are: %s", settings.default_model, ", ".join(names))
    elif settings.default_model is None and len(names) > 1:
        log.warning("%r answers /predict, being the first one loaded; set PROBITY_DEFAULT_MODEL", store.default)


async def _watch(repository: Repository, settings: Settings) -> None:
    if settings.watch_seconds is not None:
        await repository.watch(settings.watch_seconds)


def _translate_errors(app: FastAPI, metrics: Metrics) -> None:
    async def refuse(request: Request, error: Exception) -> Response:
        problem, headers = refusal(error)
        metrics.errors.labels(problem.code).inc()
        return render(request.scope["path"], problem, headers)

    async def fail(request: Request, error: Exception) -> Response:
        """Outside all middleware: what that adds is added here."""
        response = await refuse(request, error)
        response.raw_headers = with_safe_headers(response.raw_headers)
        return response

    for kind in (*TRANSLATIONS, HTTPException):
        app.add_exception_handler(kind, refuse)
    app.add_exception_handler(Exception, fail)
