"""Traces of the real service: by several workers, at its end, and without a collector that takes them."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.bundles import Synthetic
from tests.support.collector import collecting
from tests.support.http_servers import Answering, answering
from tests.support.metrics import metric
from tests.support.server import ROOT, Server, environment, refusal, run_to_end, running
from tests.support.sockets import free_port

GIVEN = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
BODY = json.dumps({"inputs": [[1.0, 2.0, 3.0, 4.0]]}).encode()


def predict(server: Server, **headers: str) -> None:
    status, _, answer = server.request("POST", "/predict", BODY, {"Content-Type": "application/json", **headers})
    assert status == 200, answer


def counted(server: Server, name: str) -> float:
    return metric(server.request("GET", "/metrics")[2].decode(), f"demur_{name}")


def test_every_worker_sends_what_is_left_when_it_ends(
    classification: Synthetic, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (
        collecting(monkeypatch, BSP_SCHEDULE_DELAY="3600000") as collector,
        running(classification.path, DEMUR_TRACES="true", DEMUR_WORKERS="2") as server,
    ):
        server.wait_for(f"traces go to {collector.url}$")
        for i in range(20):
            predict(server, **{"X-Request-ID": f"r{i}"})
        assert collector.spans == []
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(60) == 0
        found = {span.attributes["demur.request_id"] for span in collector.wait_for(20, lambda s: "POST" in s.name)}
    assert found == {f"r{i}" for i in range(20)}


def test_spans_are_counted_when_made_and_when_taken(classification: Synthetic, monkeypatch: pytest.MonkeyPatch) -> None:
    with (
        collecting(monkeypatch) as collector,
        running(classification.path, DEMUR_TRACES="true", DEMUR_WORKERS="2") as server,
    ):
        for _ in range(5):
            predict(server)
        collector.wait_for(20)
        assert counted(server, "spans_total") == 20
        while counted(server, "spans_sent_total") < 20:  # until the collector's answer is read
            pass
        assert counted(server, "spans_sent_total") == 20


class Failing(Answering):
    """A collector that takes nothing."""

    def do_POST(self) -> None:
        self.body()
        self.answer(500)


@pytest.mark.parametrize("away", [True, False])
def test_without_a_collector_requests_are_answered_and_the_end_is_in_time(
    away: bool, classification: Synthetic, monkeypatch: pytest.MonkeyPatch
) -> None:
    with answering(Failing) as failing:
        url = f"http://127.0.0.1:{free_port()}" if away else failing
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", url)
        monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "20")
        with running(classification.path, DEMUR_TRACES="true") as server:
            for _ in range(20):
                predict(server)
            server.wait_for("(?i)span")
            predict(server)
            assert counted(server, "spans_total") == 84
            assert counted(server, "spans_sent_total") == 0
            server.process.send_signal(signal.SIGTERM)
            assert server.process.wait(20) == 0


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, "OTEL_EXPORTER_OTLP_PROTOCOL: found 'grpc', expected http/protobuf"),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "collector:4317"}, "OTEL_EXPORTER_OTLP_ENDPOINT: found 'collector:4317'"),
    ],
)
def test_a_destination_that_cannot_work_is_refused(
    variables: dict[str, str], expected: str, classification: Synthetic
) -> None:
    error = refusal(str(classification.path), DEMUR_TRACES="true", **variables)
    assert f"traces (DEMUR_TRACES): {expected}" in error


def test_variables_that_opentelemetry_refuses_are_one_line(classification: Synthetic) -> None:
    refused = {"OTEL_BSP_MAX_QUEUE_SIZE": "10"}
    error = refusal(str(classification.path), DEMUR_TRACES="true", **refused)
    assert "traces (DEMUR_TRACES): found variables OTEL_... that OpenTelemetry refuses: max_export" in error
    assert "Traceback" not in error


@pytest.mark.parametrize("traces", ["true", "false"])
def test_a_propagator_that_is_not_installed_ends_nothing(
    traces: str, classification: Synthetic, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (
        collecting(monkeypatch) as collector,
        running(classification.path, DEMUR_TRACES=traces, OTEL_PROPAGATORS="b3") as server,
    ):
        predict(server, traceparent=GIVEN)
        if traces == "true":
            assert GIVEN.split("-")[1] in {span.trace for span in collector.wait_for(4)}


def test_commands_take_a_propagator_that_is_not_installed(classification: Synthetic) -> None:
    command = [sys.executable, "-m", "demur", "inspect", str(classification.path)]
    subprocess.run(command, cwd=ROOT, env=environment(OTEL_PROPAGATORS="b3"), timeout=60, check=True)


def test_a_client_s_header_fills_no_log(classification: Synthetic, monkeypatch: pytest.MonkeyPatch) -> None:
    with collecting(monkeypatch) as collector, running(classification.path, DEMUR_TRACES="true") as server:
        start = server.lines_so_far()
        for _ in range(5):
            predict(server, traceparent="0" * 600)
        collector.wait_for(20)
        assert not [line for line in server.log_of("/marker", start) if "WARNING" in line]


def test_missing_packages_are_named(classification: Synthetic, tmp_path: Path) -> None:
    hidden = (  # as where they are not installed
        "import importlib.util as util\nfind = util.find_spec\n"
        "util.find_spec = lambda name, *more: None if name.startswith('opentelemetry') else find(name, *more)\n"
    )
    (tmp_path / "sitecustomize.py").write_text(hidden)
    status, _, error = run_to_end(str(classification.path), DEMUR_TRACES="true", PYTHONPATH=str(tmp_path))
    assert status == 2
    assert "pip install opentelemetry-sdk opentelemetry-exporter-otlp-proto-http" in error
