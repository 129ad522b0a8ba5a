"""What both clients share: the URL, the API key, the time limits, and httpx's failures as errors of their own."""

import contextlib
import math
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

import httpx

from ..environment.http_client import made
from .answers import Answer
from .calls import Call, T
from .errors import ConnectionFailedError, TimedOutError, UnexpectedAnswerError
from .retrying import Clocks, Tries

C = TypeVar("C", httpx.Client, httpx.AsyncClient)
KEY_VARIABLE = "DEMUR_API_KEY"
MAX_PORT = 65535


class Connection:
    """The arguments of a client; raises `ValueError` for bad ones."""

    def __init__(self, base_url: str, api_key: str | None, timeout: float, retries: int, clocks: Clocks | None) -> None:
        self.url, self.clocks = _url(base_url), clocks or Clocks()
        self._headers = _key_headers(os.environ.get(KEY_VARIABLE) if api_key is None else api_key)
        self._timeout, self._retries = _seconds(timeout), retries
        if retries < 0:
            raise ValueError(f"retries: found {retries}, expected 0 or more")
        if self._headers and self.url.userinfo:  # httpx would send it instead of the key
            raise ValueError("base_url: found a user name in it beside an API key, expected one of the two")

    def client(self, kind: Callable[..., C], transport: Any) -> C:
        """One of httpx's own clients; raises `ValueError` for what the environment says of proxies and certificates."""
        return made(httpx, lambda: kind(transport=transport, base_url=self.url, headers=self._headers))

    def tries(self, timeout: float | None) -> Tries:
        """The budget of one call; `timeout` None: the client's."""
        return Tries(self._timeout if timeout is None else _seconds(timeout), self._retries, self.clocks)

    def request(self, http: httpx.Client | httpx.AsyncClient, call: Call[T], tries: Tries) -> httpx.Request:
        """The request of one attempt, with the time that is left."""
        seconds = tries.remaining
        return http.build_request(
            call.method, call.path, content=call.content, headers=call.headers(seconds), timeout=seconds
        )

    def result(self, call: Call[T], response: httpx.Response, body: bytes) -> T:
        """The parsed answer, or raises its `DemurError`."""
        return call.result(Answer(response.status_code, response.headers, body), self.clocks.wall())

    @contextlib.contextmanager
    def failures(self) -> Iterator[None]:
        """Turn httpx's exceptions into the client's."""
        where = f"{self.url.scheme}://{self.url.netloc.decode('ascii')}"
        try:
            yield
        except (httpx.TimeoutException, TimeoutError) as error:
            raise TimedOutError(f"{where}: no whole answer in time ({_named(error)})") from error
        except httpx.DecodingError as error:
            raise UnexpectedAnswerError(None, f"its body cannot be decoded ({_named(error)})") from error
        except httpx.HTTPError as error:
            raise ConnectionFailedError(f"{where}: no whole answer ({_named(error)})") from error


def _named(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:200]


def _url(text: str) -> httpx.URL:
    try:
        url = httpx.URL(text)
    except httpx.InvalidURL as error:
        raise ValueError(f"base_url: {error}") from error
    if (
        url.port is not None and not 0 < url.port <= MAX_PORT
    ):  # the system would take it modulo 65536, and send the key there
        raise ValueError(f"base_url: found the port {url.port}, expected one from 1 to {MAX_PORT}")
    if url.scheme not in ("http", "https") or not url.host or url.query or url.fragment:
        raise ValueError("base_url: expected one like http://127.0.0.1:8000, without a query")
    return url


def _key_headers(key: str | None) -> Mapping[str, str]:
    if not key:
        return {}
    if not key.isascii() or not key.isprintable() or " " in key:  # the key itself is not shown
        raise ValueError("api_key: found blanks, control characters or letters beyond ASCII in it, expected none")
    return {"Authorization": f"Bearer {key}"}


def _seconds(timeout: float) -> float:
    if not 0 < timeout < math.inf:
        raise ValueError(f"timeout: found {timeout}, expected seconds above 0")
    return timeout
