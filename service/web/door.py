"""Before everything else: a request whose model has no room is turned away for a fraction of its cost inside."""

import time

from fastapi import FastAPI
from starlette.datastructures import State
from starlette.types import Receive, Scope, Send

from service.batching import QueueFull
from service.models.store import ModelNotFound
from service.runtime import Runtime
from service.web.middleware import with_safe_headers
from service.web.problems import render
from service.web.refusals import refusal

# A larger body may still be on its way: it is read first, or its client would never see the answer.
SMALL_BODY = 64 * 2**10


class Door:
    """Around the application as the server runs it. Under three times the load that can be computed, two of three
    requests end here, and what they cost is taken from the third.

    With API keys every request goes inside, so that a stranger learns nothing of the queue; and where pages of other
    origins may call, since there the answers get the headers without which a browser would keep them back.
    """

    def __init__(self, app: FastAPI) -> None:
        self.app = app

    @property
    def state(self) -> State:
        """The application's."""
        return self.app.state

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        runtime: Runtime | None = getattr(self.app.state, "runtime", None)
        if scope["type"] != "http" or scope["method"] != "POST" or runtime is None or not _may_refuse(runtime, scope):
            await self.app(scope, receive, send)
            return
        started, (route, name) = time.perf_counter(), _model_of(scope["path"])
        try:
            if route:
                runtime.store.find(name).check_room()
        except QueueFull as error:
            await _refuse(error, scope, send)
            runtime.metrics.errors.labels("queue_full").inc()
            runtime.metrics.answered("POST", route, 429, time.perf_counter() - started)
            return
        except ModelNotFound:
            pass
        await self.app(scope, receive, send)


def _may_refuse(runtime: Runtime, scope: Scope) -> bool:
    settings = runtime.settings
    if runtime.draining or settings.api_keys_file is not None or settings.cors_origins:
        return False
    length = next((value for name, value in scope["headers"] if name == b"content-length"), b"")
    return length.isdigit() and int(length) <= SMALL_BODY


def _model_of(path: str) -> tuple[str, str | None]:
    """The route of a prediction, and the model that it names; "" for anything else."""
    match path.split("/"):
        case ["", "predict"]:
            return "/predict", None
        case ["", "models", name, "predict"]:
            return "/models/{name}/predict", name
        case ["", "v2", "models", name, "infer"]:
            return "/v2/models/{name}/infer", name
    return "", None


async def _refuse(error: QueueFull, scope: Scope, send: Send) -> None:
    problem, headers = refusal(error)
    response = render(scope["path"], problem, headers)
    fields = with_safe_headers(response.raw_headers)
    await send({"type": "http.response.start", "status": response.status_code, "headers": fields})
    await send({"type": "http.response.body", "body": response.body})
