"""The synchronous client."""

import contextlib
import time
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import Any, Unpack

import httpx

from ..schemas import FeedbackResponse, ModelVersion, PredictResponse
from .calls import (
    Asked,
    Call,
    File,
    Inputs,
    T,
    card_call,
    feedback_call,
    health_call,
    images_call,
    metrics_call,
    models_call,
    predict_call,
)
from .connection import Connection
from .errors import DemurError
from .retrying import Clocks, Tries


class Client:
    """Asks one service. Use it as a context manager, or `close` it; threads may share it.

    * `base_url`: where the service is, such as `http://127.0.0.1:8000`; a path is kept.
    * `api_key`: sent as `Authorization: Bearer`; without one, that of the environment variable `DEMUR_API_KEY`;
      an empty one: none.
    * `timeout`: seconds for a call, with all attempts and pauses, unless the call names its own. A server that sends
      the head of its answer byte by byte may hold a call longer; `AsyncClient` bounds that too.
    * `retries`: how often at most a request is sent again, after 429, 503 and failed connections. The pause is that of
      `Retry-After`, or a random one that doubles; no retry follows where it would not end in time.
    * `transport`: httpx's, in place of the network.
    * `clocks`, `sleep`: for tests.

    As with httpx, the environment's proxies (`HTTP_PROXY`, `HTTPS_PROXY`, `ALL_PROXY`) are used for loopback addresses
    too, unless `NO_PROXY` names them; with a `transport` they are not used.

    Raises `ValueError` for arguments that cannot work, and for variables of the environment, by name. Every call raises
    `DemurError`: `RefusedError` where the service refused, `ConnectionFailedError` where no whole answer came in time,
    `UnexpectedAnswerError` for any other.
    """

    def __init__(
        self,
        base_url: str,
        *,
        api_key: str | None = None,
        timeout: float = 30.0,
        retries: int = 3,
        transport: httpx.BaseTransport | None = None,
        clocks: Clocks | None = None,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self._connection, self._sleep = Connection(base_url, api_key, timeout, retries, clocks), sleep
        self._http = self._connection.client(httpx.Client, transport)

    def predict(self, inputs: Inputs, *, timeout: float | None = None, **asked: Unpack[Asked]) -> PredictResponse:
        """Predictions for numbers as the network takes them, shape (batch, *input shape) or one example.

        NumPy arrays travel as they are in memory; anything else as JSON. The service finds the columns of a data frame
        by the model's feature names, and leaves others out. Several inputs are a mapping of arrays by name.
        `asked`: of which model, and how; `timeout` is for the whole call, and is sent to the service.

        Raises `DemurError`; before anything is sent, `TypeError` or `ValueError` for what is no array of numbers, for
        a version without a model, and for a timeout that is not above 0.
        """
        return self._ask(predict_call(inputs, asked), timeout)

    def predict_images(
        self, files: File | Iterable[File], *, timeout: float | None = None, **asked: Unpack[Asked]
    ) -> PredictResponse:
        """Predictions for PNG, JPEG or WebP files: one or several paths, bytes, or files opened in binary mode.

        Raises as `predict` does, and `OSError` where a file cannot be read.
        """
        return self._ask(images_call(files, asked), timeout)

    def feedback(
        self,
        answer: PredictResponse | str,
        *,
        labels: Sequence[str | int | Sequence[str | int] | None] | None = None,
        values: Sequence[float | Sequence[float] | None] | None = None,
        timeout: float | None = None,
    ) -> FeedbackResponse:
        """Report what is true of the examples of an earlier `answer`, or of the one with this receipt.

        labels: the names of a classification's true classes, or a list of those that each example has; values: a
        regression's true values, or a list of one for each output; either in the order of the request, with None where
        the truth is not known.

        Raises `DemurError`; `NotFoundError` where the model that answered is not served any more. Before anything is
        sent, `ValueError` for an answer without a receipt, and unless either labels or values are given.
        """
        return self._ask(feedback_call(answer, labels, values), timeout)

    def ready(self) -> bool:
        """Whether requests are welcome; False while starting and draining. Raises `DemurError` without an answer."""
        return self._ask(health_call("ready"))

    def live(self) -> bool:
        """Whether the process can do its work. Raises `DemurError` without an answer."""
        return self._ask(health_call("live"))

    def models(self) -> list[ModelVersion]:
        """Every loaded version of every model. Raises `DemurError`."""
        return self._ask(models_call())

    def card(self, model: str | None = None, version: str | None = None) -> dict[str, Any]:
        """The model's card: its bundle's manifest and digest. Raises `DemurError`; `NotFoundError` without such."""
        return self._ask(card_call(model, version))

    def metrics(self) -> str:
        """The metrics, in the form that Prometheus reads. Raises `DemurError`."""
        return self._ask(metrics_call())

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def __enter__(self) -> "Client":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _ask(self, call: Call[T], timeout: float | None = None) -> T:
        tries = self._connection.tries(timeout)
        while True:
            try:
                return self._try(call, tries)
            except DemurError as error:
                pause = tries.pause_after(error)
                if pause is None:
                    raise
                self._sleep(pause)
                if tries.over:
                    raise

    def _try(self, call: Call[T], tries: Tries) -> T:
        request = self._connection.request(self._http, call, tries)
        with self._connection.failures(), contextlib.closing(self._http.send(request, stream=True)) as response:
            body = b"".join(tries.in_time(response.iter_bytes()))
        return self._connection.result(call, response, body)
