"""Reject a prediction whose model has no room in its queue, from the head of the request alone."""

import asyncio
import math
import time
from collections import Counter
from collections.abc import Sequence

from fastapi import FastAPI, Response

from probity.service.batching import QueueFull
from probity.service.http.errors import problem_of
from probity.service.http.middleware import secured
from probity.service.http.problems import render
from probity.service.models.served import ServedModel
from probity.service.models.store import ModelNotFound
from probity.service.runtime import Runtime

# A larger body may still be on its way. It is read first, or its client would never see the response.
SMALL_BODY = 64 * 2**10
LENGTH = b"content-length"


class EarlyRejection:
    """Decide about a POST before there is a request for the application.

    At three times the load that can be computed, two of three requests end here, and their cost is taken from the
    third: with 8 examples a request, 0.86 of the capacity is still answered, without early rejection 0.78; with one
    example 0.80 and 0.78 (medians of three alternating rounds, `python -m benchmarks early_rejection`).

    Every request goes to the application with API keys, so that strangers learn nothing of the queue, and with allowed
    origins, since only there responses get the headers that browsers demand.
    """

    def __init__(self, app: FastAPI) -> None:
        self._app = app
        self._arriving: Counter[ServedModel] = Counter()
        self._last: tuple[tuple[str, str, int], Response] | None = None  # a full queue mostly answers the same

    def reject_early(self, path: str, headers: Sequence[tuple[bytes, bytes]]) -> Response | None:
        """The response to a POST that has no room; None for every other one.

        `path` is the request's target as sent; other spellings of it are left to the application.
        """
        runtime: Runtime | None = getattr(self._app.state, "runtime", None)
        if runtime is None or not may_reject(runtime, headers):
            return None
        started, (route, name) = time.perf_counter(), _model_of(path)
        if not route:
            return None
        try:
            self._admit(runtime.store.find(name))
        except QueueFull as error:
            response = self._response(error, path)
            runtime.metrics.errors.labels("queue_full").inc()
            runtime.metrics.answered("POST", route, response.status_code, time.perf_counter() - started)
            return response
        except ModelNotFound:
            pass
        return None

    def _admit(self, model: ServedModel) -> None:
        """Count requests that were admitted but are not queued yet: the event loop reads what all connections sent
        before the first of them reaches the queue. A request whose body is still on its way is not counted longer."""
        model.check_room(self._arriving[model])
        if not self._arriving:
            asyncio.get_running_loop().call_soon(self._arriving.clear)
        self._arriving[model] += 1

    def _response(self, error: QueueFull, path: str) -> Response:
        key = (path, f"{error}", math.ceil(error.retry_after_seconds))
        if self._last is None or self._last[0] != key:
            self._last = (key, secured(render(path, *problem_of(error))))
        return self._last[1]


def may_reject(runtime: Runtime, headers: Sequence[tuple[bytes, bytes]]) -> bool:
    """Whether a request with these headers may be rejected early: its body is small, and the 429 needs no headers that
    only the middleware adds."""
    settings = runtime.settings
    if runtime.draining or settings.api_keys_file is not None or settings.cors_origins:
        return False
    length = next((value for name, value in headers if name == LENGTH), b"")
    return len(length) < 10 and length.isdigit() and int(length) <= SMALL_BODY


def _model_of(path: str) -> tuple[str, str | None]:
    """The route of a prediction and the model that it names; "" for anything else."""
    match path.split("/"):
        case ["", "predict"]:
            return "/predict", None
        case ["", "models", name, "predict"]:
            return "/models/{name}/predict", name
        case ["", "v2", "models", name, "infer"]:
            return "/v2/models/{name}/infer", name
    return "", None
