"""Calls that clients open and leave, and answers that they leave unread, keep nobody else waiting."""

import asyncio
import contextlib
import resource
import struct
from collections.abc import AsyncIterator
from typing import Any

import grpc
import numpy as np
import pytest
from grpc_health.v1 import health_pb2

from demur.service.http.problems import ProblemError
from demur.service.rpc import calls as module
from demur.service.rpc.calls import MOST_WAITING, Waits
from demur.service.rpc.protocol import SERVICE, Protocol
from demur.service.rpc.servicer import HEALTH
from tests.support.bundles import Synthetic
from tests.support.metrics import metric
from tests.support.processes import wait_until
from tests.support.server import TIMEOUT, Server, running, starting

MODEL = "synthetic"
STREAMS = 100  # of one channel, fewer than a connection may have
LONG = {"DEMUR_CLIENT_TIMEOUT_SECONDS": str(TIMEOUT)}
Code = grpc.StatusCode
PROTOCOL = Protocol()
CHECK = health_pb2.HealthCheckRequest().SerializeToString()


def message(rows: int = 1) -> bytes:
    values = np.ones((rows, 4), np.float32)
    inputs = [{"name": "inputs", "datatype": "FP32", "shape": [rows, 4]}]
    found = PROTOCOL["ModelInferRequest"](model_name=MODEL, inputs=inputs, raw_input_contents=[values.tobytes()])
    encoded: bytes = found.SerializeToString()
    return encoded


def address_of(server: Server) -> str:
    return f"127.0.0.1:{server.wait_for(r'gRPC running on 127.0.0.1:([0-9]+)')[1]}"


@contextlib.asynccontextmanager
async def connected(address: str) -> AsyncIterator[Any]:
    """A connection of its own."""
    async with grpc.aio.insecure_channel(address, options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
        yield channel


async def asked(address: str, method: str, data: bytes) -> bytes:
    async with connected(address) as channel:
        found: bytes = await channel.unary_unary(method)(data, timeout=TIMEOUT)
        return found


async def everything_answers(address: str) -> None:
    assert await asked(address, f"/{SERVICE}/ServerLive", b"") == b"\x08\x01"
    assert await asked(address, f"/{HEALTH}/Check", CHECK) == b"\x08\x01"
    assert await asked(address, f"/{SERVICE}/ModelInfer", message())


@contextlib.asynccontextmanager
async def held(address: str, method: str, count: int) -> AsyncIterator[list[Any]]:
    """So many calls without a message."""
    async with contextlib.AsyncExitStack() as stack:
        calls: list[Any] = []
        while len(calls) < count:
            channel = await stack.enter_async_context(connected(address))
            calls += [channel.stream_unary(method)() for _ in range(min(STREAMS, count - len(calls)))]
            await asyncio.gather(*(call.wait_for_connection() for call in calls[-STREAMS:]), return_exceptions=True)
        yield calls
        for call in calls:
            call.cancel()


@pytest.mark.parametrize("method", [f"/{SERVICE}/ModelInfer", f"/{HEALTH}/Check"])
def test_calls_without_a_message(classification: Synthetic, method: str) -> None:
    """More of them than there is room for."""

    async def test(address: str) -> None:
        async with held(address, method, MOST_WAITING + STREAMS) as calls:
            await everything_answers(address)
            if "ModelInfer" in method:  # the oldest gave way
                assert {await call.code() for call in calls[: STREAMS // 2]} == {Code.RESOURCE_EXHAUSTED}

    room = {"DEMUR_MAX_PENDING_BYTES": str(8 * 2**20), "DEMUR_MAX_BODY_BYTES": str(4 * 2**20)}
    with running(classification.path, DEMUR_GRPC_PORT="0", **LONG, **room) as server:
        asyncio.run(test(address_of(server)))


def test_they_do_not_keep_the_service_from_its_end(classification: Synthetic) -> None:
    async def test(server: Server) -> None:
        async with held(address_of(server), f"/{SERVICE}/ModelInfer", 10) as calls:
            server.process.terminate()
            assert {await call.code() for call in calls} == {Code.UNAVAILABLE}

    with running(classification.path, DEMUR_GRPC_PORT="0", **LONG) as server:
        asyncio.run(test(server))
        assert server.process.wait(TIMEOUT) == 0


def test_one_whose_time_is_over_already_ends_by_itself() -> None:
    """Its timeout has fired, and its task did not run yet."""

    async def wait(waits: Waits, seconds: float) -> str:
        try:
            async with waits.held(seconds):
                await asyncio.Event().wait()
        except ProblemError as error:
            return error.problem.code
        return ""

    async def test(most: int) -> list[str]:
        waits = Waits(most)
        tasks = [asyncio.create_task(wait(waits, seconds)) for seconds in (0, TIMEOUT)]
        await asyncio.sleep(0)  # both wait
        while not tasks[0].cancelling():
            await asyncio.sleep(0)
        waits.stop()
        return await asyncio.gather(*tasks)

    assert asyncio.run(test(MOST_WAITING)) == ["draining"] * 2


def test_the_oldest_gives_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once it has waited for long, or where there are very many."""
    codes = list[str]()

    async def wait(waits: Waits) -> None:
        try:
            async with waits.held(TIMEOUT):
                await asyncio.Event().wait()
        except ProblemError as error:
            codes.append(error.problem.code)

    async def test() -> None:
        waits, tasks = Waits(1), list[asyncio.Task[None]]()
        for _ in range(3):
            tasks.append(asyncio.create_task(wait(waits)))
            await asyncio.sleep(0)
        assert not any(task.cancelling() for task in tasks)
        monkeypatch.setattr(module, "QUICK_SECONDS", 0.0)
        tasks.append(asyncio.create_task(wait(waits)))
        await asyncio.gather(*tasks[:3])
        assert codes == ["busy"] * 3
        waits.stop()
        await tasks[3]

    asyncio.run(test())
    assert codes[3:] == ["draining"]


def test_who_leaves_before_its_message_is_gone(classification: Synthetic) -> None:
    async def test(server: Server) -> None:
        address = address_of(server)
        async with held(address, f"/{SERVICE}/ModelInfer", 3):
            await everything_answers(address)
        async with connected(address) as channel:
            call = channel.stream_unary(f"/{SERVICE}/ModelInfer")(timeout=0.3)
            assert await call.code() is Code.DEADLINE_EXCEEDED

    with running(classification.path, DEMUR_GRPC_PORT="0", **LONG) as server:
        asyncio.run(test(server))
        server.wait_for(r'"POST /v2/models HTTP/2" 499 .* incomplete')

        def count(reason: str) -> float:
            return metric(server.request("GET", "/metrics")[2].decode(), "demur_errors_total", reason=reason)

        wait_until(lambda: count("gone") + count("deadline_client") == 4)
        assert count("gone") >= 3
        assert count("http") == 0


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """Of HTTP/2."""
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def one_that_reads_nothing(data: bytes) -> bytes:
    """A connection that asks for one prediction, and takes no byte of the answer: its window is 0."""
    fields = {":method": "POST", ":scheme": "http", ":path": f"/{SERVICE}/ModelInfer", ":authority": "x"}
    fields |= {"te": "trailers", "content-type": "application/grpc"}
    head = b"".join(
        b"\0" + bytes([len(name)]) + name.encode() + bytes([len(value)]) + value.encode()
        for name, value in fields.items()
    )
    body = frame(0, 1, 1, b"\0" + struct.pack(">I", len(data)) + data)
    return b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0, struct.pack(">HI", 4, 0)) + frame(1, 4, 1, head) + body


def test_an_answer_that_nobody_reads_ends(classification: Synthetic) -> None:
    """Until then it is under way, as over HTTP."""

    def in_flight(server: Server) -> float:
        text = server.request("GET", "/metrics")[2].decode()
        return next(float(line.split()[1]) for line in text.splitlines() if line.startswith("demur_http_requests_in_"))

    async def test(server: Server) -> None:
        _, writer = await asyncio.open_connection("127.0.0.1", int(address_of(server).rpartition(":")[2]))
        writer.write(one_that_reads_nothing(message()))
        await writer.drain()
        await asyncio.to_thread(wait_until, lambda: in_flight(server) == 2)  # this one, and the scrape
        await asyncio.to_thread(wait_until, lambda: in_flight(server) == 1)
        writer.close()
        await everything_answers(address_of(server))

    with running(classification.path, DEMUR_GRPC_PORT="0", DEMUR_CLIENT_TIMEOUT_SECONDS="2") as server:
        asyncio.run(test(server))


def test_connections_leave_file_handles_for_http(classification: Synthetic) -> None:
    async def test(server: Server) -> None:
        port = int(address_of(server).rpartition(":")[2])
        idle = [await asyncio.open_connection("127.0.0.1", port) for _ in range(400)]
        assert server.request("GET", "/health/ready")[0] == 200
        for _, writer in idle:
            writer.close()

    with starting(str(classification.path), DEMUR_GRPC_PORT="0") as server:
        resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE, (256, 256))
        server.port = int(server.wait_for(r"running on http://127\.0\.0\.1:(\d+)")[1])
        asyncio.run(test(server))
