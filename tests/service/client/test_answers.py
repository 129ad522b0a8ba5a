"""What the clients make of any answer: a typed result, or one of their own errors."""

import contextlib
import json
import pickle
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from demur.service.client import (
    BadRequestError,
    ConnectionFailedError,
    DeadlineError,
    DemurError,
    NotFoundError,
    RefusedError,
    ServerError,
    TooBusyError,
    UnauthorizedError,
    UnavailableError,
    UnexpectedAnswerError,
)
from tests.support.fake_service import ANSWER, KINDS, World, ok, refusing

CLASSES = [
    (400, BadRequestError),
    (401, UnauthorizedError),
    (403, UnauthorizedError),
    (404, NotFoundError),
    (408, BadRequestError),
    (413, BadRequestError),
    (415, BadRequestError),
    (422, BadRequestError),
    (429, TooBusyError),
    (500, ServerError),
    (502, ServerError),
    (503, UnavailableError),
    (504, DeadlineError),
    (599, ServerError),
]
METHODS = ["predict", "models", "card", "metrics", "ready", "live"]
ONCE = {"retries": 0}


@pytest.mark.parametrize(("status", "error"), CLASSES)
def test_a_refusal_says_what_the_service_said(kind: str, status: int, error: type[RefusedError]) -> None:
    with pytest.raises(RefusedError) as caught:
        World(kind, [refusing(status, retry_after="7")]).ask(options=ONCE)
    found = caught.value
    assert type(found) is error
    assert (found.status, found.code, found.detail, found.retry_after) == (status, "no", "Not so.", 7.0)
    assert (found.field, found.found, found.expected) == ("inputs", "'x'", None)
    assert found.problem.title == "No"
    assert str(found) == f"{status} no: Not so."


@pytest.mark.parametrize(("status", "error"), [*CLASSES, (418, BadRequestError), (450, BadRequestError)])
@pytest.mark.parametrize("body", [b"", b"<html>Sorry</html>", b"{}", b"[]", b"\xff", b'{"error": "no"}'])
def test_a_refusal_by_a_proxy_is_of_the_same_class(status: int, error: type[RefusedError], body: bytes) -> None:
    with pytest.raises(RefusedError) as caught:
        World("sync", [httpx.Response(status, content=body)]).ask(options=ONCE)
    assert type(caught.value) is error
    assert (caught.value.status, caught.value.code) == (status, "http")
    assert "Sorry" in caught.value.detail or b"Sorry" not in body


def test_the_status_is_http_s_whatever_the_body_says() -> None:
    document = {"title": "No", "status": 200, "code": "no", "detail": "Not so."}
    with pytest.raises(UnauthorizedError) as caught:
        World("sync", [httpx.Response(401, json=document)]).ask()
    assert caught.value.status == caught.value.problem.status == 401


def test_errors_can_be_pickled() -> None:
    with pytest.raises(TooBusyError) as caught:
        World("sync", [refusing(429, retry_after="7")]).ask(options=ONCE)
    for error in (caught.value, UnexpectedAnswerError(200, "no"), ConnectionFailedError("no")):
        copy = pickle.loads(pickle.dumps(error))
        assert type(copy) is type(error)
        assert (str(copy), copy.retry_after) == (str(error), error.retry_after)


@pytest.mark.parametrize("status", [201, 204, 301, 307])
def test_other_statuses_are_unexpected(kind: str, status: int) -> None:
    response = httpx.Response(status, headers={"location": "http://elsewhere.test/predict"})
    with pytest.raises(UnexpectedAnswerError) as caught:
        World(kind, [response]).ask()
    assert caught.value.status == status


def change(**changes: Any) -> bytes:
    return json.dumps({**ANSWER, **changes}).encode()


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"hello",
        b"{}",
        b"[]",
        b"null",
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"a": 1e999}',
        change(model=None),
        change(predictions=None),
        change(predictions=[{}]),
        change(predictions=[{"mean": [1.0]}]),
        change(timing={}),
        change(warnings="perhaps"),
    ],
)
def test_a_body_that_does_not_fit_the_schema_is_unexpected(kind: str, body: bytes) -> None:
    with pytest.raises(UnexpectedAnswerError) as caught:
        World(kind, [httpx.Response(200, content=body)]).ask()
    assert caught.value.__cause__ is not None
    assert len(str(caught.value)) < 1500


def test_the_health_of_another_question_is_unexpected(kind: str) -> None:
    with pytest.raises(UnexpectedAnswerError):
        World(kind, [ok({"status": "live"})]).ask("ready")


class Garbage(httpx.SyncByteStream, httpx.AsyncByteStream):
    """A body that is decoded when it is read, as those from the network are."""

    def __iter__(self) -> Iterator[bytes]:
        yield b"garbage"

    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield b"garbage"


@pytest.mark.parametrize("coding", ["gzip", "deflate"])
def test_a_body_that_is_not_compressed_as_it_says_is_unexpected(kind: str, coding: str) -> None:
    response = httpx.Response(200, headers={"content-encoding": coding}, stream=Garbage())
    with pytest.raises(UnexpectedAnswerError) as caught:
        World(kind, [response]).ask()
    assert caught.value.status is None


def test_fields_of_later_versions_do_no_harm(kind: str) -> None:
    assert World(kind, [ok({**ANSWER, "new": 1})]).ask().model.name == "m"


numbers = st.integers() | st.floats() | st.sampled_from([10**400, -(2**63)])
values = st.recursive(
    st.none() | st.booleans() | numbers | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
NAMES = [*ANSWER, "warnings", "models", "status", "title", "detail", "code", "type", "field"]
objects = st.dictionaries(st.sampled_from(NAMES), values, max_size=6)
documents = (values | objects | objects.map(lambda given: {**ANSWER, **given})).map(
    lambda value: json.dumps(value).encode()
)
statuses = st.sampled_from([200, 204, 302, 400, 401, 404, 429, 500, 503, 504, 599])
retry_afters = st.none() | st.binary(max_size=30).map(lambda data: data.replace(b"\r", b"").replace(b"\n", b""))


@pytest.mark.parametrize("kind", KINDS)
@given(
    method=st.sampled_from(METHODS),
    status=statuses,
    body=documents | st.binary(max_size=50),
    retry_after=retry_afters,
)
def test_no_answer_raises_anything_else(
    kind: str, method: str, status: int, body: bytes, retry_after: bytes | None
) -> None:
    headers = [] if retry_after is None else [(b"retry-after", retry_after)]
    world = World(kind, [httpx.Response(status, content=body, headers=headers) for _ in range(2)])
    with contextlib.suppress(DemurError):
        world.ask(method, options={"retries": 1})
    assert sum(world.slept) < 30
