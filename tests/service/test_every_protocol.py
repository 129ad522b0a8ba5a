"""What is refused, is refused the same way whatever protocol it comes by: status, words, metrics, log and id."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest

from demur.service.rpc.calls import CODES
from demur.service.rpc.protocol import SERVICE, Protocol
from demur.service.security.api_keys import new_key
from tests.support.bundles import Synthetic
from tests.support.metrics import metric
from tests.support.processes import wait_until, written_lines
from tests.support.server import TIMEOUT, Server, running

PROTOCOL = Protocol()
VALUES = np.array([[1, 2, 3, 4], [5, 6, 7, 8]], np.float32)
INPUT = {"name": "inputs", "datatype": "FP32"}
CODES_OK = grpc.StatusCode.OK


@dataclass(frozen=True)
class Asked:
    """A prediction that somebody asks for."""

    values: Any = field(default_factory=VALUES.copy)
    model: str = "synthetic"
    version: str | None = None
    rate: float | None = None
    headers: dict[str, str] = field(default_factory=dict)

    @property
    def path(self) -> str:
        return f"/models/{self.model}" + (f"/versions/{self.version}" if self.version else "")

    @property
    def parameters(self) -> dict[str, Any]:
        return {} if self.rate is None else {"false_reject_rate": self.rate}


@dataclass(frozen=True)
class Answered:
    status: Any
    detail: str
    identity: str
    retry: str | None


def by_http(server: Server, path: str, body: bytes, headers: dict[str, str]) -> Answered:
    status, given, answer = server.request("POST", path, body, headers)
    found = {} if status == 200 else json.loads(answer)
    return Answered(
        status, found.get("error") or found.get("detail", ""), given["x-request-id"], given.get("retry-after")
    )


def native(server: Server, asked: Asked) -> Answered:
    query = "" if asked.rate is None else f"?false_reject_rate={asked.rate}"
    body = json.dumps({"inputs": asked.values.tolist()}).encode()
    return by_http(server, f"{asked.path}/predict{query}", body, asked.headers | {"Content-Type": "application/json"})


def v2(server: Server, asked: Asked) -> Answered:
    tensor = INPUT | {"shape": list(asked.values.shape), "data": asked.values.tolist()}
    body = json.dumps({"inputs": [tensor], "parameters": asked.parameters}).encode()
    return by_http(server, f"/v2{asked.path}/infer", body, asked.headers)


def binary(server: Server, asked: Asked) -> Answered:
    size = {"binary_data_size": asked.values.nbytes}
    head = {"inputs": [INPUT | {"shape": list(asked.values.shape), "parameters": size}], "parameters": asked.parameters}
    text = json.dumps(head).encode()
    headers = asked.headers | {"Inference-Header-Content-Length": str(len(text))}
    return by_http(server, f"/v2{asked.path}/infer", text + asked.values.tobytes(), headers)


def rpc(server: Server, asked: Asked) -> Answered:
    message = PROTOCOL["ModelInferRequest"](
        model_name=asked.model,
        model_version=asked.version or "",
        inputs=[INPUT | {"shape": asked.values.shape}],
        raw_input_contents=[asked.values.tobytes()],
        parameters={name: {"double_param": value} for name, value in asked.parameters.items()},
    )
    address = f"127.0.0.1:{server.wait_for(r'gRPC running on 127.0.0.1:([0-9]+)')[1]}"
    metadata = [(name.lower(), value) for name, value in asked.headers.items()]
    with grpc.insecure_channel(address) as channel:
        call = channel.unary_unary(f"/{SERVICE}/ModelInfer").future(
            message.SerializeToString(), metadata=metadata, timeout=TIMEOUT
        )
        told = dict(call.trailing_metadata())
        return Answered(call.code(), call.details(), told["x-request-id"], told.get("retry-after"))


PROTOCOLS: dict[str, Callable[[Server, Asked], Answered]] = {"native": native, "v2": v2, "binary": binary, "gRPC": rpc}
# What is asked for, and the status and code of its refusal.
REFUSALS: dict[str, tuple[Asked, int, str]] = {
    "no such model": (Asked(model="nobody"), 404, "model_not_found"),
    "no such version": (Asked(version="7"), 404, "model_not_found"),
    "another width": (Asked(values=np.ones((2, 5), np.float32)), 422, "input"),
    "too many examples": (Asked(values=np.ones((9, 4), np.float32)), 413, "input_too_large"),
    "far too large values": (Asked(values=np.full((1, 4), 3e38, np.float32)), 422, "non_finite_output"),
    "a rate that is not allowed": (Asked(rate=0.2), 422, "false_reject_rate"),
    "a rate that is none": (Asked(rate=1.5), 422, "false_reject_rate"),
    "a deadline that is none": (Asked(headers={"X-Request-Timeout": "soon"}), 422, "field"),
    "a deadline that has passed": (Asked(headers={"X-Request-Timeout": "1e-9"}), 504, "deadline_client"),
    "an id of another form": (Asked(headers={"X-Request-ID": "a b"}), 422, "field"),
}


@pytest.fixture(scope="module")
def audit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("audit") / "audit.jsonl"


@pytest.fixture(scope="module")
def server(classification: Synthetic, audit: Path) -> Iterator[Server]:
    with running(classification.path, DEMUR_GRPC_PORT="0", DEMUR_MAX_ROWS="8", DEMUR_AUDIT_FILE=str(audit)) as found:
        yield found


def count(server: Server, name: str, **labels: str) -> float:
    return metric(server.request("GET", "/metrics")[2].decode(), name, **labels)


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("case", REFUSALS)
def test_a_refusal_is_the_same(server: Server, case: str, protocol: str) -> None:
    asked, status, code = REFUSALS[case]
    identity = asked.headers.get("X-Request-ID", f"{protocol}-{list(REFUSALS).index(case)}")
    asked = replace(asked, headers={"X-Request-ID": identity} | asked.headers)
    before, start = count(server, "demur_errors_total", reason=code), server.lines_so_far()
    found = PROTOCOLS[protocol](server, asked)
    assert found.status == (CODES[status] if protocol == "gRPC" else status)
    told = v2(server, asked).detail
    assert found.detail == told or protocol == "native" or code == "deadline_client"  # which says where it passed
    assert "Input should" not in found.detail
    assert found.retry is None
    assert count(server, "demur_errors_total", reason=code) == before + 2
    assert (found.identity == identity) == (" " not in identity)
    path = f"{'' if protocol == 'native' else '/v2'}{asked.path}/{'predict' if protocol == 'native' else 'infer'}"
    server.wait_for(rf'"POST {path}\S* HTTP/\S+" {status} .*request={found.identity}', start)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_an_answer_is_counted_and_kept_the_same(server: Server, audit: Path, protocol: str) -> None:
    examples, requests = count(server, "demur_predictions_total"), count(server, "demur_queue_seconds_count")
    assert PROTOCOLS[protocol](server, Asked(headers={"X-Request-ID": f"kept-{protocol}"})).status in (200, CODES_OK)
    assert count(server, "demur_predictions_total") == examples + len(VALUES)
    assert count(server, "demur_queue_seconds_count") == requests + 1

    def kept(name: str) -> list[dict[str, Any]]:
        lines = map(json.loads, written_lines(audit))
        return [
            {key: value for key, value in line.items() if key not in {"id", "time"}}
            for line in lines
            if line.get("id") == f"kept-{name}"
        ]

    native(server, Asked(headers={"X-Request-ID": f"kept-beside-{protocol}"}))
    wait_until(lambda: len(kept(f"beside-{protocol}")) == len(VALUES))
    assert kept(protocol) == kept(f"beside-{protocol}")


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_key_is_needed_the_same(classification: Synthetic, tmp_path: Path, protocol: str) -> None:
    key, entry = new_key("tester")
    (tmp_path / "keys").write_text(entry.line)
    with running(classification.path, DEMUR_GRPC_PORT="0", DEMUR_API_KEYS_FILE=str(tmp_path / "keys")) as server:
        ask = PROTOCOLS[protocol]
        for headers, words in (({}, "Found no key"), ({"X-API-Key": "demur_x"}, "Found a key that is not known here")):
            found = ask(server, Asked(headers=headers))
            assert found.status in (401, CODES[401])
            assert found.detail.startswith(words)
        assert ask(server, Asked(headers={"Authorization": f"Bearer {key}"})).status in (200, CODES_OK)
        server.wait_for(r"key=tester model=synthetic version=1")
