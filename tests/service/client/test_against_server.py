"""Both clients and the real service in a process of its own, over loopback."""

import asyncio
import json
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from demur.service.client import (
    AsyncClient,
    BadRequestError,
    Client,
    ConnectionFailedError,
    NotFoundError,
    PredictResponse,
    TimedOutError,
    UnauthorizedError,
)
from demur.service.security.api_keys import new_key
from tests.support.bundles import Synthetic, rewrite
from tests.support.client import up_to_rounding
from tests.support.fake_service import ask
from tests.support.requests import GOOD, image_file
from tests.support.server import Server, running

ROWS = [GOOD, [0.0, 0.0, 0.0, 1.0]]
PICTURES = "pictures"


@pytest.fixture(scope="module")
def server_and_key(
    classification: Synthetic, images: Synthetic, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Server, str]]:
    """Serves two models; the one that takes numbers is the default."""
    folder = tmp_path_factory.mktemp("models")
    rewrite(images.path, folder / PICTURES, manifest=replace(images.manifest, name=PICTURES))
    key, entry = new_key("tester")
    keys = tmp_path_factory.mktemp("keys") / "keys"
    keys.write_text(entry.line)
    with running(classification.path, DEMUR_MODELS=str(folder), DEMUR_API_KEYS_FILE=str(keys)) as started:
        started.wait_until_loaded(Authorization=f"Bearer {key}")
        yield started, key


@pytest.fixture
def url(server_and_key: tuple[Server, str], monkeypatch: pytest.MonkeyPatch) -> str:
    """Where it listens; its key is in the environment."""
    server, key = server_and_key
    monkeypatch.setenv("DEMUR_API_KEY", key)
    return f"http://127.0.0.1:{server.port}"


def asked(kind: str, url: str, method: str, *arguments: Any, **named: Any) -> Any:
    options = named.pop("options", {})
    return ask(kind, method, *arguments, options=options, url=url, **named)


def test_predictions(kind: str, url: str, classification: Synthetic) -> None:
    answers: list[PredictResponse] = [
        asked(kind, url, "predict", inputs, timeout=20) for inputs in (ROWS, np.array(ROWS), np.array(ROWS, np.float32))
    ]
    for answer in answers:
        assert answer.predictions == answers[0].predictions
        assert answer.model.name == classification.manifest.name
        assert len(answer.predictions) == 2


def test_images(kind: str, url: str, tmp_path: Path) -> None:
    path = tmp_path / "image.png"
    path.write_bytes(image_file())
    answer: PredictResponse = asked(kind, url, "predict_images", [path, image_file()], model=PICTURES)
    assert answer.model.name == PICTURES
    first, second = (one.model_dump_json() for one in answer.predictions)
    assert json.loads(second) == up_to_rounding(first)


def test_everything_else(kind: str, url: str, classification: Synthetic) -> None:
    assert asked(kind, url, "ready") is True
    assert asked(kind, url, "live") is True
    assert {model.name for model in asked(kind, url, "models")} == {classification.manifest.name, PICTURES}
    assert asked(kind, url, "card", PICTURES, "1")["name"] == PICTURES
    assert "demur_" in asked(kind, url, "metrics")


def test_refusals(kind: str, url: str) -> None:
    with pytest.raises(BadRequestError) as caught:
        asked(kind, url, "predict", [[1, 2, "three", 4]])
    assert caught.value.field == "inputs[0][2]"
    with pytest.raises(NotFoundError):
        asked(kind, url, "predict", ROWS, model="a b/ü")
    with pytest.raises(NotFoundError):
        asked(kind, url + "/elsewhere", "card")
    with pytest.raises(UnauthorizedError):
        asked(kind, url, "predict", ROWS, options={"api_key": "demur_another"})


def test_threads_share_a_client(url: str) -> None:
    with Client(url) as client, ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: client.predict(ROWS), range(32)))
    assert all(answer.predictions == answers[0].predictions for answer in answers)


def test_tasks_share_a_client(url: str) -> None:
    async def many() -> list[PredictResponse]:
        async with AsyncClient(url) as client:
            return await asyncio.gather(*(client.predict(ROWS) for _ in range(32)))

    answers = asyncio.run(many())
    assert all(answer.predictions == answers[0].predictions for answer in answers)


@pytest.fixture
def deaf() -> Iterator[str]:
    """Connections are accepted here, by the operating system, and never answered."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"


def test_a_service_that_is_silent_is_given_up(kind: str, deaf: str) -> None:
    with pytest.raises(TimedOutError, match=deaf):
        asked(kind, deaf, "predict", ROWS, timeout=0.1)


def test_a_service_that_is_not_there(kind: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    with pytest.raises(ConnectionFailedError) as caught:
        asked(kind, f"http://127.0.0.1:{port}", "ready", options={"retries": 0})
    assert caught.value.__cause__ is not None
    assert not isinstance(caught.value, TimedOutError)
