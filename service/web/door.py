"""Before everything else: a request whose model has no room is turned away for a fraction of its cost inside."""

import asyncio
import math
import time
from collections import Counter
from collections.abc import Sequence

from fastapi import FastAPI, Response

from service.batching import QueueFull
from service.models.served import ServedModel
from service.models.store import ModelNotFound
from service.runtime import Runtime
from service.web.middleware import safe
from service.web.problems import render
from service.web.refusals import refusal

# A larger body may still be on its way: it is read first, or its client would never see the answer.
SMALL_BODY = 64 * 2**10
LENGTH = b"content-length"


class Door:
    """What the protocol asks about the head of a POST, before there is a request for the application.

    Under three times the load that can be computed, two of three requests end here, and what they cost is taken from
    the third. With API keys every request goes inside, so that a stranger learns nothing of the queue; and where pages
    of other origins may call, since there the answers get the headers without which a browser would keep them back.
    """

    def __init__(self, app: FastAPI) -> None:
        self._app = app
        self._arriving: Counter[ServedModel] = Counter()
        self._said: tuple[tuple[str, str, int], Response] | None = None  # a full queue is mostly full in the same way

    def turns_away(self, path: str, headers: Sequence[tuple[bytes, bytes]]) -> Response | None:
        """The answer to a POST that has no room; None for every other one.

        `path` is the request's target as it was sent: one that is spelled in another way is looked at inside.
        """
        runtime: Runtime | None = getattr(self._app.state, "runtime", None)
        if runtime is None or not _may_refuse(runtime, headers):
            return None
        started, (route, name) = time.perf_counter(), _model_of(path)
        if not route:
            return None
        try:
            self._let_in(runtime.store.find(name))
        except QueueFull as error:
            response = self._say(error, path)
            runtime.metrics.errors.labels("queue_full").inc()
            runtime.metrics.answered("POST", route, response.status_code, time.perf_counter() - started)
            return response
        except ModelNotFound:
            pass
        return None

    def _let_in(self, model: ServedModel) -> None:
        """The event loop takes in what all connections sent, and only then the first of them comes to the queue: until
        then they are counted here. One whose body is still on its way is not counted for longer."""
        model.check_room(self._arriving[model])
        if not self._arriving:
            asyncio.get_running_loop().call_soon(self._arriving.clear)
        self._arriving[model] += 1

    def _say(self, error: QueueFull, path: str) -> Response:
        what = (path, f"{error}", math.ceil(error.retry_after_seconds))
        if self._said is None or self._said[0] != what:
            self._said = (what, safe(render(path, *refusal(error))))
        return self._said[1]


def _may_refuse(runtime: Runtime, headers: Sequence[tuple[bytes, bytes]]) -> bool:
    settings = runtime.settings
    if runtime.draining or settings.api_keys_file is not None or settings.cors_origins:
        return False
    length = next((value for name, value in headers if name == LENGTH), b"")
    return len(length) < 10 and length.isdigit() and int(length) <= SMALL_BODY


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
