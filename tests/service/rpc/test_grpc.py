"""The real service, asked over gRPC by the real tritonclient, and by what else strangers use."""

import asyncio
import contextlib
import json
import re
import signal
import threading
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from demur.service.rpc.protocol import SERVICE, Protocol
from demur.service.security.api_keys import new_key
from tests.support.bundles import Synthetic
from tests.support.collector import collecting
from tests.support.metrics import metric
from tests.support.requests import image_file
from tests.support.server import RUNNING, TIMEOUT, Server, run_to_end, running, starting

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # the client's own
    import tritonclient.grpc as triton
    import tritonclient.grpc.aio as triton_aio
    from tritonclient.utils import InferenceServerException

MODEL = "synthetic"
VALUES = np.array([[1, 2, 3, 4], [5, 6, 7, 8], [0, 1, 0, 1]], np.float32)
PROTOCOL = Protocol()
CODES = grpc.StatusCode


@contextlib.contextmanager
def serving(bundle: Path, **extra: str) -> Iterator[tuple[Server, str]]:
    """The service, and where its gRPC is."""
    with running(bundle, DEMUR_GRPC_PORT="0", **extra) as server:
        yield server, f"127.0.0.1:{server.wait_for(r'gRPC running on 127.0.0.1:([0-9]+)')[1]}"


@pytest.fixture(scope="module")
def both(classification: Synthetic) -> Iterator[tuple[Server, str]]:
    with serving(classification.path) as found:
        yield found


@pytest.fixture(scope="module")
def address(both: tuple[Server, str]) -> str:
    return both[1]


@pytest.fixture(scope="module")
def client(address: str) -> Iterator[Any]:
    with triton.InferenceServerClient(address) as found:
        yield found


def tensor(values: Any = VALUES, datatype: str = "FP32", name: str = "inputs") -> Any:
    found = triton.InferInput(name, list(values.shape), datatype)
    found.set_data_from_numpy(values)
    return found


def call(address: str, method: str, request: Any, metadata: Any = (), timeout: float = TIMEOUT) -> Any:
    """The answer to a message of ours, as bytes go over the wire."""
    with grpc.insecure_channel(address) as channel:
        ask = channel.unary_unary(f"/{SERVICE}/{method}")
        data = request if isinstance(request, bytes) else request.SerializeToString()
        return PROTOCOL[f"{method}Response"].FromString(ask(data, metadata=metadata, timeout=timeout))


def by_http(server: Server) -> dict[str, np.ndarray]:
    body = {"inputs": [{"name": "inputs", "shape": [3, 4], "datatype": "FP32", "data": VALUES.tolist()}]}
    status, _, answer = server.request("POST", f"/v2/models/{MODEL}/infer", json.dumps(body).encode())
    assert status == 200
    return {
        output["name"]: np.array(output["data"]).reshape(output["shape"]) for output in json.loads(answer)["outputs"]
    }


def test_health_and_metadata(client: Any) -> None:
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready(MODEL)
    assert client.is_model_ready(MODEL, "1")
    assert not client.is_model_ready("nobody")
    assert client.get_server_metadata().name == "demur"
    found = client.get_model_metadata(MODEL)
    assert (found.name, list(found.versions), list(found.inputs[0].shape)) == (MODEL, ["1"], [-1, 4])
    assert [output.name for output in found.outputs][:2] == ["probabilities", "map_probabilities"]
    with pytest.raises(InferenceServerException, match=r"NOT_FOUND.*'nobody' is not loaded"):
        client.get_model_metadata("nobody")


def test_answers_are_those_of_http(both: tuple[Server, str], client: Any) -> None:
    found = client.infer(MODEL, [tensor()], request_id="mine")
    response = found.get_response()
    assert (response.model_name, response.model_version, response.id) == (MODEL, "1", "mine")
    assert not response.parameters
    expected = by_http(both[0])
    assert [output.name for output in response.outputs] == [*expected]
    for name, values in expected.items():
        np.testing.assert_allclose(found.as_numpy(name), values, rtol=1e-6)


def test_only_outputs_that_are_asked_for(client: Any) -> None:
    asked = [triton.InferRequestedOutput(name) for name in ("rejected", "prediction_set")]
    found = client.infer(MODEL, [tensor()], outputs=asked)
    assert [output.name for output in found.get_response().outputs] == ["rejected", "prediction_set"]
    assert found.as_numpy("prediction_set").shape == (3, 3)


@pytest.mark.parametrize(("kind", "name"), [("u1", "UINT8"), ("i8", "INT64"), ("f2", "FP16"), ("f8", "FP64")])
def test_other_datatypes(client: Any, kind: str, name: str) -> None:
    expected = client.infer(MODEL, [tensor()]).as_numpy("mean")
    found = client.infer(MODEL, [tensor(VALUES.astype(kind), name)])
    np.testing.assert_allclose(found.as_numpy("mean"), expected, rtol=1e-6)


def test_typed_contents_get_typed_contents(address: str, client: Any) -> None:
    """As KServe's client sends them."""
    contents = {"fp32_contents": VALUES.reshape(-1).tolist()}
    inputs = [{"name": "inputs", "datatype": "FP32", "shape": [3, 4], "contents": contents}]
    found = call(address, "ModelInfer", PROTOCOL["ModelInferRequest"](model_name=MODEL, inputs=inputs))
    assert not found.raw_output_contents
    values = {output.name: output for output in found.outputs}
    expected = client.infer(MODEL, [tensor()])
    np.testing.assert_allclose(values["mean"].contents.fp32_contents, expected.as_numpy("mean").reshape(-1), rtol=1e-6)
    assert list(values["rejected"].contents.bool_contents) == expected.as_numpy("rejected").tolist()


def test_images_are_files_in_bytes(images: Synthetic) -> None:
    files = np.array([image_file(), image_file()], object)
    with serving(images.path) as (server, address), triton.InferenceServerClient(address) as client:
        name = json.loads(server.request("GET", "/model")[2])["name"]
        assert client.infer(name, [tensor(files, "BYTES")]).as_numpy("mean").shape == (2, 3)


def test_many_at_once_and_asynchronously(client: Any, address: str) -> None:
    with ThreadPoolExecutor(16) as threads:
        means = [*threads.map(lambda _: client.infer(MODEL, [tensor()]).as_numpy("mean"), range(100))]
    assert all(np.allclose(mean, means[0], rtol=1e-5) for mean in means)

    async def ask() -> Any:
        async with triton_aio.InferenceServerClient(address) as own:
            return (await own.infer(MODEL, [tensor()])).as_numpy("mean")

    np.testing.assert_allclose(asyncio.run(ask()), means[0], rtol=1e-5)


@pytest.mark.parametrize(
    ("change", "code", "words"),
    [
        ({"model_name": "nobody"}, CODES.NOT_FOUND, "'nobody' is not loaded"),
        ({"model_name": ""}, CODES.NOT_FOUND, ""),
        ({"model_version": "7"}, CODES.NOT_FOUND, "of version '7'"),
        ({"inputs": []}, CODES.INVALID_ARGUMENT, "raw_input_contents: found 1 contents for 0 inputs"),
        ({"raw_input_contents": [b"abc"]}, CODES.INVALID_ARGUMENT, "found 3 bytes, expected 48"),
        ({"outputs": [{"name": "odds"}]}, CODES.INVALID_ARGUMENT, "found 'odds', expected one of"),
        ({"raw_input_contents": [b"\xff" * 48]}, CODES.INVALID_ARGUMENT, "inputs[0]"),
    ],
)
def test_errors_say_what_is_wrong(address: str, change: dict[str, Any], code: Any, words: str) -> None:
    usual = {
        "model_name": MODEL,
        "inputs": [{"name": "inputs", "datatype": "FP32", "shape": [3, 4]}],
        "raw_input_contents": [VALUES.tobytes()],
    }
    with pytest.raises(grpc.RpcError) as refused:
        call(address, "ModelInfer", PROTOCOL["ModelInferRequest"](**(usual | change)))
    assert refused.value.code() is code
    assert words in refused.value.details()


@pytest.mark.parametrize("data", [b"\xff", b"\x2a\x00" * 20_000, b"\x0a\x7fabc"])
def test_what_is_no_message_is_refused_and_others_go_on(address: str, client: Any, data: bytes) -> None:
    with pytest.raises(grpc.RpcError) as refused:
        call(address, "ModelInfer", data)
    assert refused.value.code() is CODES.INVALID_ARGUMENT
    assert "ModelInferRequest" in refused.value.details()
    assert client.is_server_live()


def test_a_message_that_is_too_large_is_refused_by_grpc(address: str) -> None:
    with pytest.raises(grpc.RpcError) as refused:
        call(address, "ModelInfer", b"\x3a" + b"\0" * (5 * 2**20))
    assert refused.value.code() is CODES.RESOURCE_EXHAUSTED


def test_deadlines_are_the_clients(address: str) -> None:
    request = PROTOCOL["ModelInferRequest"](
        model_name=MODEL,
        inputs=[{"name": "inputs", "datatype": "FP32", "shape": [3, 4]}],
        raw_input_contents=[VALUES.tobytes()],
    )
    with pytest.raises(grpc.RpcError) as refused:
        call(address, "ModelInfer", request, timeout=-1.0)  # one that is to come may be later than the answer
    assert refused.value.code() is CODES.DEADLINE_EXCEEDED
    with pytest.raises(grpc.RpcError) as refused:
        call(address, "ModelInfer", request, [("x-request-timeout", "soon")])
    assert refused.value.code() is CODES.INVALID_ARGUMENT


def test_metrics_log_and_ids_are_those_of_http(both: tuple[Server, str], address: str) -> None:
    server, _ = both
    start = server.lines_so_far()
    with grpc.insecure_channel(address) as channel:
        ask = channel.unary_unary(f"/{SERVICE}/ModelMetadata")
        request = PROTOCOL["ModelMetadataRequest"](name="nobody").SerializeToString()
        with pytest.raises(grpc.RpcError) as refused:
            ask(request, metadata=[("x-request-id", "given"), ("x-forwarded-for", "203.0.113.9")], timeout=TIMEOUT)
    assert dict(refused.value.trailing_metadata())["x-request-id"] == "given"
    # From whom a proxy on this machine names.
    line = server.wait_for(r'203\.0\.113\.9\S* - "GET /v2/models/nobody HTTP/2" 404.*', start)[0]
    assert line.endswith("request=given")
    counted = r'demur_http_requests_total\{method="GET",route="/v2/models/\{name\}",status="404"\} [1-9]'
    assert re.search(counted, server.request("GET", "/metrics")[2].decode())


@pytest.mark.parametrize("name", ["synthetic/ready", "synthetic/infer", "synthetic/versions/1", "../x", "a\r\nb"])
def test_a_name_is_no_path_and_writes_no_line(both: tuple[Server, str], name: str) -> None:
    server, address = both
    start = server.lines_so_far()
    for method in ("ModelMetadata", "ModelReady"):
        with contextlib.suppress(grpc.RpcError):
            assert not call(address, method, PROTOCOL[f"{method}Request"](name=name)).ready
    with pytest.raises(grpc.RpcError) as refused:
        call(address, "ModelMetadata", PROTOCOL["ModelMetadataRequest"](name=name, version="1"))
    assert refused.value.code() is CODES.NOT_FOUND
    assert all(" INFO" in line for line in server.log_of("/done", start))


def test_a_call_without_a_message_ends(classification: Synthetic) -> None:
    settings = {"DEMUR_CLIENT_TIMEOUT_SECONDS": "0.3"}
    with serving(classification.path, **settings) as (_, address), grpc.insecure_channel(address) as channel:
        never = threading.Event()

        def nothing() -> Iterator[bytes]:
            never.wait(TIMEOUT)
            yield b""

        ask = channel.stream_unary(f"/{SERVICE}/ModelInfer")
        with pytest.raises(grpc.RpcError) as refused:
            ask(nothing(), timeout=TIMEOUT)
        never.set()
        assert refused.value.code() is CODES.DEADLINE_EXCEEDED
        assert "did not arrive within 0.3 seconds" in refused.value.details()
        with pytest.raises(grpc.RpcError) as refused:
            ask(iter(()), timeout=TIMEOUT)
        assert "found no message" in refused.value.details()


@pytest.mark.slow
def test_refused_messages_leave_no_memory(classification: Synthetic) -> None:
    with serving(classification.path) as (server, address), grpc.insecure_channel(address) as channel:
        ask = channel.unary_unary(f"/{SERVICE}/ModelInfer")
        big = PROTOCOL["ModelInferRequest"](model_name="nobody", raw_input_contents=[b"\0" * (4 * 2**20 - 100)])

        def refuse(times: int) -> int:
            for _ in range(times):
                with pytest.raises(grpc.RpcError):
                    ask(big.SerializeToString(), timeout=TIMEOUT)
            status = Path(f"/proc/{server.process.pid}/status").read_text()
            return int(re.findall(r"VmRSS:\s+(\d+)", status)[0]) * 1024

        before = refuse(30)
        assert refuse(60) - before < 100 * 2**20


def test_health(address: str) -> None:
    with grpc.insecure_channel(address) as channel:
        health: Any = health_pb2_grpc.HealthStub(channel)
        ask = health_pb2.HealthCheckRequest
        for name in ("", SERVICE):
            assert health.Check(ask(service=name), timeout=TIMEOUT).status == health_pb2.HealthCheckResponse.SERVING
        with pytest.raises(grpc.RpcError) as refused:
            health.Check(ask(service="nobody"), timeout=TIMEOUT)
        assert refused.value.code() is CODES.NOT_FOUND
        with pytest.raises(grpc.RpcError) as refused:
            next(health.Watch(ask(service=""), timeout=TIMEOUT))
        assert refused.value.code() is CODES.UNIMPLEMENTED  # and clients do without


def test_keys(classification: Synthetic, tmp_path: Path) -> None:
    key, entry = new_key("tester")
    (tmp_path / "keys").write_text(entry.line)
    settings = {"DEMUR_API_KEYS_FILE": str(tmp_path / "keys")}
    with serving(classification.path, **settings) as (_, own), triton.InferenceServerClient(own) as client:
        assert client.is_server_ready()
        with pytest.raises(InferenceServerException, match="UNAUTHENTICATED"):
            client.infer(MODEL, [tensor()])
        with pytest.raises(InferenceServerException, match="UNAUTHENTICATED"):
            client.is_model_ready(MODEL)
        headers = {"authorization": f"Bearer {key}"}
        assert client.infer(MODEL, [tensor()], headers=headers).as_numpy("mean").shape == (3, 3)


def test_silent_calls_without_a_key_keep_nobody_waiting(classification: Synthetic, tmp_path: Path) -> None:
    key, entry = new_key("tester")
    (tmp_path / "keys").write_text(entry.line)
    settings = {"DEMUR_API_KEYS_FILE": str(tmp_path / "keys"), "DEMUR_CLIENT_TIMEOUT_SECONDS": str(TIMEOUT)}
    never = threading.Event()

    def silence() -> Iterator[bytes]:
        never.wait(TIMEOUT)
        yield b""

    with serving(classification.path, **settings) as (server, own), grpc.insecure_channel(own) as channel:
        calls = [
            channel.stream_unary(f"/{SERVICE}/{method}").future(silence(), timeout=TIMEOUT)
            for method in ("ModelInfer", "ServerLive")
            for _ in range(100)
        ]
        for call, code in zip(calls, [CODES.UNAUTHENTICATED] * 100 + [CODES.OK] * 100, strict=True):
            assert call.code() is code
        never.set()
        with triton.InferenceServerClient(own) as client:
            headers = {"authorization": f"Bearer {key}"}
            assert client.infer(MODEL, [tensor()], headers=headers).as_numpy("mean").shape == (3, 3)
        text = server.request("GET", "/metrics", None, {"X-API-Key": key})[2].decode()
        assert metric(text, "demur_errors_total", reason="unauthorized") == 100


def test_the_end_loses_nothing(classification: Synthetic) -> None:
    """SIGTERM while sixteen clients ask: every call is answered, or was never taken."""
    with serving(classification.path, DEMUR_DRAIN_SECONDS="1") as (server, address):
        with triton.InferenceServerClient(address) as client:

            def ask_on(_: int) -> list[str]:
                outcomes: list[str] = []
                for _ in range(100_000):
                    try:
                        client.infer(MODEL, [tensor()])
                    except InferenceServerException as error:
                        return [*outcomes, str(error.status())]
                    outcomes.append("answered")
                return outcomes

            with ThreadPoolExecutor(16) as threads:
                asked = [threads.submit(ask_on, place) for place in range(16)]
                client.infer(MODEL, [tensor()])
                server.process.send_signal(signal.SIGTERM)
                outcomes = [one.result() for one in asked]
        assert server.process.wait(TIMEOUT) == 0
    assert {one[-1] for one in outcomes} <= {"StatusCode.UNAVAILABLE", "StatusCode.CANCELLED"}
    answered = sum(len(one) - 1 for one in outcomes)
    assert answered > 100
    statuses = [match[1] for line in server.lines if (match := re.search(r'/infer HTTP/2" (\d+)', line))]
    assert statuses.count("200") == answered + 1
    assert {*statuses} <= {"200", "503"}


def test_two_workers_share_the_port(classification: Synthetic) -> None:
    with running(classification.path) as one:
        free = one.port  # taken while it runs, free after
    arguments = str(classification.path), "--grpc-port", str(free)
    with starting(*arguments, DEMUR_WORKERS="2") as server:
        server.port = int(server.wait_for(RUNNING)[1])
        for _ in range(2):
            server.wait_for(rf"gRPC running on 127\.0\.0\.1:{free}")
        with triton.InferenceServerClient(f"127.0.0.1:{free}") as client:
            assert client.infer(MODEL, [tensor()]).as_numpy("mean").shape == (3, 3)


def test_a_port_that_is_taken_and_one_that_cannot_be_shared(
    classification: Synthetic, both: tuple[Server, str]
) -> None:
    status, _, errors = run_to_end(str(classification.path), "--port", "0", "--grpc-port", str(both[0].port))
    assert status != 0
    assert "grpc_port (DEMUR_GRPC_PORT): cannot serve on 127.0.0.1" in errors
    taken = both[1].rpartition(":")[2]  # by another service's gRPC
    status, _, errors = run_to_end(str(classification.path), "--port", "0", "--grpc-port", taken)
    assert status == 2
    assert "address already in use" in errors
    status, _, errors = run_to_end(str(classification.path), "--grpc-port", "0", DEMUR_WORKERS="2")
    assert status == 2
    assert "grpc_port (DEMUR_GRPC_PORT): found 0, expected one port that all workers share" in errors


def test_a_call_goes_on_with_the_trace_of_its_client(
    classification: Synthetic, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace, parent = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
    with (
        collecting(monkeypatch) as collector,
        serving(classification.path, DEMUR_TRACES="true") as (_, address),
        triton.InferenceServerClient(address) as client,
    ):
        client.infer(MODEL, [tensor()], headers={"traceparent": f"00-{trace}-{parent}-01"})
        spans = collector.wait_for(4)
    (root,) = [span for span in spans if span.parent == parent]
    assert (root.name, root.attributes["demur.rows"]) == ("POST /v2/models/{name}/infer", len(VALUES))
    assert {span.trace for span in spans} == {trace}
