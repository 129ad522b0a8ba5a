"""When the clients ask again, how long they wait before, and when they give up."""

import asyncio
from collections.abc import Iterator
from email.utils import formatdate

import httpx
import pytest

from demur.service.client import (
    BadRequestError,
    ConnectionFailedError,
    DeadlineError,
    DemurError,
    PredictResponse,
    ServerError,
    TimedOutError,
    TooBusyError,
    UnavailableError,
)
from tests.support.fake_service import NOW, World, ok, refusing

LOST = httpx.ConnectError("refused")


def date(seconds: float) -> str:
    """So long after the beginning, as headers write it."""
    return formatdate(NOW + seconds, usegmt=True)


@pytest.mark.parametrize("status", [429, 503])
def test_retry_after_in_seconds_is_waited_for(kind: str, status: int) -> None:
    world = World(kind, [refusing(status, retry_after="2"), refusing(status, retry_after="0"), ok()])
    assert isinstance(world.ask(), PredictResponse)
    assert world.slept == [2.0, 0.0]
    assert [request.headers["x-request-timeout"] for request in world.requests] == ["30", "28", "28"]
    assert len({request.content for request in world.requests}) == 1


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry_after": date(4)}, 4.0),
        ({"retry_after": date(-4)}, 0.0),
        ({"retry_after": date(1004), "date": date(1000)}, 4.0),  # the service's clock is ahead
        ({"retry_after": date(4), "date": "yesterday"}, 4.0),
        ({"retry_after": "0.25"}, 0.25),
    ],
)
def test_retry_after_as_a_date_is_waited_for(kind: str, headers: dict[str, str], seconds: float) -> None:
    world = World(kind, [refusing(429, **headers), ok()])
    world.ask()
    assert world.slept == [seconds]


@pytest.mark.parametrize(
    "text", [None, "", "soon", "-1", "nan", "1e3", "\N{ARABIC-INDIC DIGIT ONE}", "Tue, 14 Nov 99999 22:13:20 GMT"]
)
def test_otherwise_the_pauses_are_random_and_double(kind: str, text: str | None) -> None:
    headers = {} if text is None else {"retry_after": text}
    world = World(kind, [*(refusing(503, **headers) for _ in range(3)), ok()], chance=0.5)
    world.ask()
    assert world.slept == [0.05, 0.1, 0.2]


def test_pauses_do_not_grow_for_ever(kind: str) -> None:
    world = World(kind, [*(refusing(503) for _ in range(99)), ok()], chance=0.5)
    world.ask(options={"retries": 99, "timeout": 1e6})
    assert max(world.slept) == world.slept[-1] == 2.5


@pytest.mark.parametrize("error", [LOST, httpx.ReadError("reset"), httpx.RemoteProtocolError("closed")])
def test_failed_connections_are_tried_again(kind: str, error: Exception) -> None:
    world = World(kind, [error, error, ok()])
    assert isinstance(world.ask(), PredictResponse)
    assert world.slept == [0.05, 0.1]


def test_the_last_error_is_raised_when_the_tries_are_used_up(kind: str) -> None:
    world = World(kind, [refusing(429), refusing(503), LOST])
    with pytest.raises(ConnectionFailedError, match=r"^http://service\.test: .*refused") as caught:
        world.ask(options={"retries": 2})
    assert caught.value.__cause__ is LOST
    assert len(world.requests) == 3


@pytest.mark.parametrize("status", [400, 401, 403, 404, 408, 413, 415, 422, 500, 502, 504, 599])
def test_other_refusals_are_final(kind: str, status: int) -> None:
    world = World(kind, [refusing(status, retry_after="1")])
    with pytest.raises(DemurError):
        world.ask()
    assert world.slept == []


def test_without_retries_the_first_answer_is_final(kind: str) -> None:
    world = World(kind, [refusing(429, retry_after="1")])
    with pytest.raises(TooBusyError) as caught:
        world.ask(options={"retries": 0})
    assert caught.value.retry_after == 1.0


@pytest.mark.parametrize("asked", ["5", "6", "9" * 400, date(5)])
def test_a_pause_beyond_the_timeout_is_not_begun(kind: str, asked: str) -> None:
    world = World(kind, [refusing(503, retry_after=asked)])
    with pytest.raises(UnavailableError):
        world.ask(timeout=5)
    assert world.slept == []


def test_the_pauses_together_stay_within_the_timeout(kind: str) -> None:
    world = World(kind, [refusing(429, retry_after="2") for _ in range(4)])
    with pytest.raises(TooBusyError):
        world.ask(options={"timeout": 5})
    assert world.slept == [2.0, 2.0]
    assert [request.headers["x-request-timeout"] for request in world.requests] == ["5", "3", "1"]


def test_time_that_a_try_takes_counts(kind: str) -> None:
    def slow(_: httpx.Request) -> httpx.Response:
        world.now += 1.5
        return refusing(429, retry_after="2")

    world = World(kind, [slow, slow])
    with pytest.raises(TooBusyError):
        world.ask(timeout=6)
    assert world.slept == [2.0]
    assert [request.headers["x-request-timeout"] for request in world.requests] == ["6", "2.5"]


def test_who_sleeps_too_long_does_not_ask_again(kind: str) -> None:
    world = World(kind, [refusing(503, retry_after="1")])
    sleep = world.sleep
    world.sleep = lambda seconds: sleep(10 * seconds)  # type: ignore[method-assign]
    with pytest.raises(UnavailableError):
        world.ask(timeout=5)


def test_a_try_has_no_more_time_than_is_left(kind: str) -> None:
    world = World(kind, [refusing(429, retry_after="2"), ok()])
    world.ask(timeout=5)
    limits = [request.extensions["timeout"] for request in world.requests]
    assert [set(limit.values()) for limit in limits] == [{5.0}, {3.0}]


def test_a_try_that_timed_out_is_an_error_of_its_own(kind: str) -> None:
    def silent(request: httpx.Request) -> httpx.Response:
        world.now += 5
        raise httpx.ReadTimeout("silence", request=request)

    world = World(kind, [silent])
    with pytest.raises(TimedOutError) as caught:
        world.ask(timeout=5)
    assert isinstance(caught.value, ConnectionFailedError)
    assert isinstance(caught.value.__cause__, httpx.ReadTimeout)


def test_an_answer_that_trickles_is_given_up() -> None:
    class Trickle(httpx.SyncByteStream):
        def __iter__(self) -> Iterator[bytes]:
            for _ in range(100):
                world.now += 1
                yield b" "

    world = World("sync", [httpx.Response(200, stream=Trickle())])
    with pytest.raises(TimedOutError):
        world.ask(timeout=5)
    assert world.now == 5


def test_an_answer_that_never_comes_is_given_up() -> None:
    async def never(_: httpx.Request) -> httpx.Response:
        await asyncio.Event().wait()
        raise AssertionError

    world = World("async", [])
    with pytest.raises(TimedOutError):
        world.ask(options={"transport": httpx.MockTransport(never), "retries": 0}, timeout=0.01)


@pytest.mark.parametrize(
    ("status", "error"), [(504, DeadlineError), (500, ServerError), (422, BadRequestError), (429, TooBusyError)]
)
def test_a_later_answer_is_the_one_that_counts(kind: str, status: int, error: type[DemurError]) -> None:
    world = World(kind, [LOST, refusing(status, retry_after="99")])
    with pytest.raises(error):
        world.ask()


@pytest.mark.parametrize("method", ["ready", "live"])
def test_health_does_not_wait_for_better_times(kind: str, method: str) -> None:
    world = World(kind, [refusing(503, retry_after="1")])
    assert world.ask(method) is False
    assert world.slept == []
