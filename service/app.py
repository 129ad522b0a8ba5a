"""create_app: the application around one predictor, and the one place where errors become HTTP."""

import contextlib
from collections.abc import AsyncIterator

from fastapi import FastAPI, Request, Response
from prometheus_client import CollectorRegistry
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from service.inputs import InputError, InputTooLarge
from service.metrics import Metrics
from service.middleware import CLIENT_GONE, RequestMetrics
from service.predictor import NetworkError, Predictor
from service.problems import ProblemError, make_problem, problem_response
from service.routes import operations, predict
from service.runtime import Runtime
from service.schemas import Problem
from service.settings import Settings

DESCRIPTION = "Predictions that say how sure they are, and say no when they should."


def create_app(predictor: Predictor, settings: Settings, registry: CollectorRegistry | None = None) -> FastAPI:
    """The service around `predictor`. `registry` receives the metrics; without one, the app has its own."""
    metrics = Metrics(registry if registry is not None else CollectorRegistry())

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        runtime = Runtime(predictor, settings, metrics)
        app.state.runtime = runtime
        metrics.model_loaded(predictor)
        yield
        runtime.draining = True

    app = FastAPI(title="Probity", description=DESCRIPTION, version=predictor.manifest.version, lifespan=lifespan)
    app.include_router(predict.router)
    app.include_router(operations.router)
    app.add_middleware(RequestMetrics, metrics=metrics)
    _translate_errors(app, metrics)
    return app


def _translate_errors(app: FastAPI, metrics: Metrics) -> None:
    def refuse(problem: Problem, headers: dict[str, str] | None = None) -> Response:
        metrics.errors.labels(problem.code).inc()
        return problem_response(problem, headers)

    @app.exception_handler(ProblemError)
    async def on_problem(_: Request, error: ProblemError) -> Response:
        return refuse(error.problem)

    @app.exception_handler(InputError)
    async def on_input(_: Request, error: InputError) -> Response:
        too_large = isinstance(error, InputTooLarge)
        status, code = (413, "input_too_large") if too_large else (422, "input")
        where = {"field": error.field, "found": error.found, "expected": error.expected}
        return refuse(make_problem(status, code, f"{error}.", **where))

    @app.exception_handler(NetworkError)
    async def on_network(_: Request, error: NetworkError) -> Response:
        return refuse(make_problem(422, "network", f"{error}"))

    @app.exception_handler(ClientDisconnect)
    async def on_disconnect(_: Request, __: ClientDisconnect) -> Response:
        return Response(status_code=CLIENT_GONE)  # nobody reads it; it is counted

    @app.exception_handler(HTTPException)
    async def on_http(_: Request, error: HTTPException) -> Response:
        codes = {404: "not_found", 405: "method_not_allowed"}
        code = codes.get(error.status_code, "http")
        return refuse(make_problem(error.status_code, code, f"{error.detail}."), dict(error.headers or {}))

    @app.exception_handler(Exception)
    async def on_bug(_: Request, __: Exception) -> Response:
        return refuse(make_problem(500, "internal", "The service failed; the operator's log has the details."))
