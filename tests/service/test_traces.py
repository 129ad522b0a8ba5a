"""Traces of requests: spans as a collector gets them, and what comes of requests where none takes them."""

import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from demur.service.bundle import read_bundle
from demur.service.inference.predictor import Predictor
from demur.service.settings import Settings
from tests.support.bundles import Synthetic
from tests.support.client import Client, problem, serving
from tests.support.collector import Span, collecting
from tests.support.server import ROOT
from tests.support.slow import Slow
from tests.support.v2 import GOOD, VALUES, binary, post

ROWS = [[0.5, -1.0, 2.0, 0.25], [1.0, 2.0, 3.0, 4.0], [9.0, 9.0, -9.0, 9.0]]
TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
SERVER = 2  # SPAN_KIND_SERVER of the protocol
ON = Settings(traces=True)


def traceparent(sampled: bool = True) -> str:
    return f"00-{TRACE}-{PARENT}-0{int(sampled)}"


def predict(client: Client, query: str = "", **headers: str) -> Any:
    response = client.predict({"inputs": ROWS}, query, **headers)
    assert response.status_code == 200, response.text
    return response.json()


def of(spans: list[Span], name: str) -> Span:
    (found,) = [span for span in spans if span.name == name]
    return found


def test_a_prediction_goes_on_with_the_trace_of_its_client(
    classification: Synthetic, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = time.time_ns()
    settings, predictor = Settings(traces=True, requested_rates=(0.01, 0.99)), Predictor.load(classification.path)
    with collecting(monkeypatch) as collector, serving(predictor, settings) as client:
        answer = predict(client, "?false_reject_rate=0.95", traceparent=traceparent(), x_request_id="mine-1")
        spans = collector.wait_for(4)
    after = time.time_ns()
    root = of(spans, "POST /predict")
    steps = [of(spans, name) for name in ("decode", "queue", "compute")]
    assert len(spans) == 4
    assert {span.trace for span in spans} == {TRACE}
    assert (root.parent, root.kind, root.failed) == (PARENT, SERVER, False)
    assert {step.parent for step in steps} == {root.span}
    moments = [before, root.start, *(moment for step in steps for moment in (step.start, step.end)), root.end, after]
    assert moments == sorted(moments)
    assert steps[2].start < steps[2].end
    rejected = sum(prediction["rejected"] for prediction in answer["predictions"])
    assert root.attributes == {
        "http.request.method": "POST",
        "http.route": "/predict",
        "http.response.status_code": 200,
        "url.path": "/predict",
        "url.scheme": "http",
        "network.protocol.version": "1.1",
        "client.address": "127.0.0.1",
        "demur.request_id": "mine-1",
        "demur.model": answer["model"]["name"],
        "demur.version": answer["model"]["version"],
        "demur.rows": 3,
        "demur.rejected": rejected,
    }
    assert rejected > 0
    assert root.resource["service.name"] == "demur"


def test_the_open_inference_protocol_is_traced_too(classification: Synthetic, monkeypatch: pytest.MonkeyPatch) -> None:
    with collecting(monkeypatch) as collector, serving(Predictor.load(classification.path), ON) as client:
        body, headers = binary(VALUES)
        assert post(client, GOOD).status_code == 200
        assert post(client, body, **headers).status_code == 200
        spans = collector.wait_for(8)
    roots = [span for span in spans if span.kind == SERVER]
    assert len(roots) == 2
    assert len({root.trace for root in roots}) == 2  # each its own, for nobody has begun one
    assert {root.parent for root in roots} == {""}
    for root in roots:
        assert root.attributes["http.route"] == "/v2/models/{name}/infer"
        assert root.attributes["demur.rows"] == len(VALUES)
        inside = {span.name for span in spans if span.parent == root.span}
        assert inside == {"decode", "queue", "compute"}


@pytest.mark.parametrize(
    "header", ["", "00-0-0-01", "00-" + "0" * 32 + f"-{PARENT}-01", "?" * 55, f"00-{TRACE}-{PARENT}-01, x"]
)
def test_a_malformed_trace_of_a_client_begins_a_new_one(
    header: str, classification: Synthetic, monkeypatch: pytest.MonkeyPatch
) -> None:
    with collecting(monkeypatch) as collector, serving(Predictor.load(classification.path), ON) as client:
        predict(client, traceparent=header)
        root = of(collector.wait_for(4), "POST /predict")
    assert root.parent == ""
    assert root.trace != TRACE


def test_a_client_decides_whether_its_trace_is_kept(classification: Synthetic, monkeypatch: pytest.MonkeyPatch) -> None:
    with collecting(monkeypatch) as collector, serving(Predictor.load(classification.path), ON) as client:
        predict(client, traceparent=traceparent(sampled=False))
        predict(client)
    assert len(collector.spans) == 4
    assert TRACE not in {span.trace for span in collector.spans}


def test_a_share_of_traces_is_kept_where_the_environment_says_so(
    classification: Synthetic, monkeypatch: pytest.MonkeyPatch
) -> None:
    variables = {"TRACES_SAMPLER": "parentbased_traceidratio", "TRACES_SAMPLER_ARG": "0", "SERVICE_NAME": "digits"}
    with collecting(monkeypatch, **variables) as collector, serving(Predictor.load(classification.path), ON) as client:
        predict(client)
        predict(client, traceparent=traceparent())
    assert {span.trace for span in collector.spans} == {TRACE}
    assert collector.spans[0].resource["service.name"] == "digits"


@pytest.mark.parametrize("variable", [{"SDK_DISABLED": "TRUE"}, {"TRACES_EXPORTER": "none"}])
def test_the_environment_turns_traces_off(
    variable: dict[str, str], classification: Synthetic, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (
        collecting(monkeypatch, **variable) as collector,
        serving(Predictor.load(classification.path), ON) as client,
    ):
        predict(client, traceparent=traceparent())
    assert collector.spans == []


def test_a_refusal_is_traced_as_far_as_it_came(classification: Synthetic, monkeypatch: pytest.MonkeyPatch) -> None:
    with collecting(monkeypatch) as collector, serving(Predictor.load(classification.path), ON) as client:
        problem(client.predict({"inputs": [[1.0]]}), 422, "input")
        problem(client.request("POST", "/models/none/predict", content=b"{}"), 404, "model_not_found")
        assert client.get("/nothing/%ff\u2028here").status_code == 404
        spans = collector.wait_for(4)
    shown = {
        (span.name, span.attributes.get("http.response.status_code"), span.attributes.get("demur.rows"), span.failed)
        for span in spans
    }
    assert shown == {
        ("POST /predict", 422, None, False),
        ("decode", None, None, False),
        ("POST /models/{name}/predict", 404, None, False),
        ("GET", 404, None, False),
    }


def test_a_deadline_that_passed_shows_where_the_time_went(
    classification: Synthetic, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = Slow(read_bundle(classification.path))
    with collecting(monkeypatch) as collector, serving(slow, ON) as client:
        problem(client.predict({"inputs": ROWS}, x_request_timeout="0.05"), 504, "deadline_client")
        spans = collector.wait_for(3)
        slow.proceed.set()
    root, queue = of(spans, "POST /predict"), of(spans, "queue")
    assert {span.name for span in spans} == {"POST /predict", "decode", "queue"}
    assert (root.failed, root.attributes["error.type"]) == (True, "504")
    assert queue.end - queue.start > 0.04e9
    assert queue.end == root.end


def test_health_and_metrics_are_not_traced(classification: Synthetic, monkeypatch: pytest.MonkeyPatch) -> None:
    with collecting(monkeypatch) as collector, serving(Predictor.load(classification.path), ON) as client:
        for path in ("/health/live", "/health/ready", "/v2/health/live", "/v2/health/ready", "/metrics"):
            assert client.get(path).status_code == 200
        predict(client)
    assert len(collector.spans) == 4


def test_without_traces_nothing_of_opentelemetry_is_loaded(classification: Synthetic) -> None:
    code = (
        "import sys; from demur.service.app import create_app; from demur.service.settings import Settings\n"
        "from demur.service.inference.predictor import Predictor\n"
        f"create_app(Predictor.load({str(classification.path)!r}), Settings())\n"
        "print([name for name in sys.modules if name.startswith('opentelemetry.sdk')])"
    )
    command = [sys.executable, "-c", code]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=True)
    assert found.stdout.strip() == "[]"


def test_several_requests_at_once_keep_their_spans_apart(
    classification: Synthetic, monkeypatch: pytest.MonkeyPatch
) -> None:
    with collecting(monkeypatch) as collector, serving(Predictor.load(classification.path), ON) as client:
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda i: predict(client, x_request_id=f"r{i}"), range(40)))
        spans = collector.wait_for(160)
    roots = [span for span in spans if span.kind == SERVER]
    assert {root.attributes["demur.request_id"] for root in roots} == {f"r{i}" for i in range(40)}
    assert all(sum(span.parent == root.span for span in spans) == 3 for root in roots)
