"""A plain, synchronous client of the application: no socket, one event loop in a thread of its own."""

import base64
import contextlib
import io
import json
import struct
import zlib
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from typing import Any

import httpx
import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal
from fastapi import FastAPI
from PIL import Image

from demur.service.app import create_app
from demur.service.inference.predictor import Predictor
from demur.service.schemas import Problem
from demur.service.settings import Settings

TIMEOUT = 60
PROBLEM_TYPE = "application/problem+json"


class Client:
    """Requests to one application. `start` sends a request and does not wait for its answer."""

    def __init__(self, portal: BlockingPortal, http: httpx.AsyncClient, app: FastAPI) -> None:
        self.portal, self.http, self.app = portal, http, app

    def start(self, method: str, path: str, **options: Any) -> "Future[httpx.Response]":
        async def send() -> httpx.Response:
            return await self.http.request(method, path, **options)

        return self.portal.start_task_soon(send)

    def request(self, method: str, path: str, **options: Any) -> httpx.Response:
        return self.start(method, path, **options).result(timeout=TIMEOUT)

    def get(self, path: str) -> httpx.Response:
        return self.request("GET", path)

    def predict(self, body: Any, query: str = "", **headers: str) -> httpx.Response:
        """POST /predict; a body that is not bytes or text is written as JSON. `a_b` is sent as the header `a-b`."""
        content = body if isinstance(body, bytes | str) else json.dumps(body)
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        headers = {"content-type": "application/json", **named}
        return self.request("POST", f"/predict{query}", content=content, headers=headers)


@contextlib.contextmanager
def serving(
    predictor: Predictor | Sequence[Predictor],
    settings: Settings | None = None,
    backend: dict[str, Any] | None = None,
    **options: Any,
) -> Iterator[Client]:
    """A client of the application around `predictor`, started; bugs become 500 as they do in production. `backend`: of
    the event loop."""
    app = create_app(predictor, settings or Settings(), **options)
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    with (
        start_blocking_portal(backend_options=backend or {}) as portal,
        portal.wrap_async_context_manager(app.router.lifespan_context(app)),
        portal.wrap_async_context_manager(httpx.AsyncClient(transport=transport, base_url="http://test")) as http,
    ):
        yield Client(portal, http, app)


def problem(response: httpx.Response, status: int, code: str) -> Problem:
    """The problem that a refusal holds, checked for its form."""
    assert response.status_code == status, response.text[:500]
    assert response.headers["content-type"] == PROBLEM_TYPE
    found = Problem.model_validate(response.json(), extra="forbid")
    assert found.type == "about:blank"
    assert found.status == status
    assert found.title
    assert found.detail
    assert found.code == code
    assert "Traceback" not in response.text
    assert len(response.content) < 2000
    return found


def encoded(picture: Image.Image, kind: str = "PNG", **options: Any) -> bytes:
    """The picture as a file of this kind."""
    stream = io.BytesIO()
    picture.save(stream, kind, **options)
    return stream.getvalue()


def base64_text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def pixel_bomb(width: int, height: int) -> bytes:
    """A tiny PNG whose header claims this size."""
    chunks = [
        (b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)),
        (b"IDAT", zlib.compress(b"")),
        (b"IEND", b""),
    ]
    body = [
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks
    ]
    return b"\x89PNG\r\n\x1a\n" + b"".join(body)


def up_to_rounding(text: str) -> Any:
    """The value of a JSON text, equal to others with nearly the same numbers: a product rounds by its rows."""
    return json.loads(text, parse_float=lambda number: pytest.approx(float(number), rel=1e-4))
