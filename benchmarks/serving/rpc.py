"""gRPC and HTTP to the same service: what each carries at saturation, and latencies at 70 % of that."""

import statistics
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import numpy as np

from benchmarks.core.harness import MeasurementError
from benchmarks.core.settings import Settings, Values
from benchmarks.serving.digits import binary, rows
from benchmarks.serving.fitted import bundle
from benchmarks.serving.h2load import Asked, answered_a_second, latencies
from benchmarks.serving.process import ServerProcess, demur, free_port
from demur.service.rpc.protocol import SERVICE, Protocol

LOAD, WORKERS = 0.7, (1, 2)
GRPC_HEADERS = (("content-type", "application/grpc"), ("te", "trailers"))


def run(settings: Settings) -> Values:
    """One example a request, in the binary form of each; the forms take turns in every round."""
    return {
        "load": LOAD,
        "workers": {
            str(workers): of_workers(settings, workers) for workers in settings.track(WORKERS, "Workers", len(WORKERS))
        },
    }


def of_workers(settings: Settings, workers: int) -> Values:
    seconds, count, scratch = settings.choose(8, 1), settings.choose(7, 1), settings.scratch
    with service(scratch / f"{workers}.log", workers) as (server, grpc_port):
        forms = {"HTTP": (server.port, http_form()), "gRPC": (grpc_port, grpc_form(grpc_port))}
        for port, asked in forms.values():  # first use
            answered_a_second(port, asked, 1, scratch)
        rounds: list[dict[str, Values]] = []
        capacity = {
            name: statistics.median(answered_a_second(port, asked, seconds / 2, scratch) for _ in range(3))
            for name, (port, asked) in forms.items()
        }
        for number in range(count):
            turn = {}
            for name in list(forms)[:: 1 if number % 2 else -1]:
                port, asked = forms[name]
                each = latencies(port, asked, LOAD * capacity[name], seconds, scratch)
                turn[name] = {"p50": float(np.quantile(each, 0.5)), "p99": float(np.quantile(each, 0.99))}
            rounds.append(turn)
    return {
        name: {
            "requests_per_second": capacity[name],
            **{key: statistics.median(turn[name][key] for turn in rounds) for key in ("p50", "p99")},
        }
        for name in forms
    } | {"rounds": rounds}


@contextmanager
def service(log: Path, workers: int) -> Iterator[tuple[ServerProcess, int]]:
    """The service with both ports."""
    grpc_port = free_port()
    settings = {"DEMUR_ACCESS_LOG": "false", "DEMUR_GRPC_PORT": str(grpc_port), "DEMUR_WORKERS": str(workers)}
    with demur(bundle(), log, binary(1), threads=1, **settings) as server:
        yield server, grpc_port


def http_form() -> Asked:
    asked = binary(1)
    return Asked("HTTP", asked.path, asked.headers, asked.body, http2=False)


def grpc_form(port: int) -> Asked:
    """The same example as a raw tensor, framed; raises `MeasurementError` where the service does not answer it."""
    values = rows(1)
    message = Protocol()["ModelInferRequest"](
        model_name="digits",
        inputs=[{"name": "inputs", "datatype": "FP32", "shape": values.shape}],
        raw_input_contents=[values.tobytes()],
    )
    body: bytes = message.SerializeToString()
    method = f"/{SERVICE}/ModelInfer"
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        call: Any = channel.unary_unary(method, request_serializer=None, response_deserializer=None)
        try:
            call(body, timeout=30)
        except grpc.RpcError as error:
            raise MeasurementError(f"gRPC: {error}") from None
    return Asked("gRPC", method, GRPC_HEADERS, b"\0" + len(body).to_bytes(4, "big") + body, http2=True)
