"""/v2 of the application: every refusal has the native API's status and the protocol's shape."""

import asyncio
import json
import threading
from typing import Any

import pytest

from demur.service.bundle import Bundle, read_bundle
from demur.service.inference.predictor import Prediction, Predictor
from demur.service.settings import Settings
from tests.support.bundles import Synthetic
from tests.support.client import Client, serving
from tests.support.metrics import metric
from tests.support.v2 import (
    GOOD,
    INFER,
    LENGTH,
    MODEL,
    Json,
    post,
    refused,
)

TIMEOUT = 30


def missed(client: Client) -> dict[str, float]:
    """Deadlines missed so far: the operator's, and those that clients chose."""
    text = client.get("/metrics").text
    return {name: metric(text, "demur_errors_total", reason=name) for name in ("deadline", "deadline_client")}


class TestRefusals:
    """The native API's statuses, in the protocol's shape."""

    @pytest.mark.parametrize(
        "path", ["/v2/", "/v2/x", "/v2/models", "/v2/models/synthetic/x", "/v2/models/no", "/v2/models/no/ready"]
    )
    def test_unknown_paths_and_models(self, client: Client, path: str) -> None:
        if path == "/v2/":
            assert client.get(path).status_code in (307, 404)
        else:
            refused(client.get(path), 404)

    @pytest.mark.parametrize(
        "path", ["/v2/models/no/infer", f"{MODEL}/versions/9/infer", "/v2/models/%ff/infer", "/v2/models/../infer"]
    )
    def test_unknown_models_cannot_infer(self, client: Client, path: str) -> None:
        refused(post(client, GOOD, path), 404)

    @pytest.mark.parametrize("query", ["trial=true", "false_reject_rate=0.4", "detail=full", "x", "%ff"])
    def test_a_query_is_refused_and_not_passed_over(self, client: Client, query: str) -> None:
        assert "expected none" in refused(post(client, GOOD, f"{INFER}?{query}"), 422)

    @pytest.mark.parametrize(("method", "path"), [("GET", INFER), ("POST", "/v2"), ("PUT", MODEL)])
    def test_other_methods(self, client: Client, method: str, path: str) -> None:
        response = client.request(method, path)
        refused(response, 405)
        assert response.headers["allow"]

    @pytest.mark.parametrize("body", [b"", b"{", b"\xff", b"[" * 5000])
    def test_not_json(self, client: Client, body: bytes) -> None:
        refused(post(client, body), 400, "not JSON")

    def test_wrong_values(self, client: Client) -> None:
        tensor = GOOD["inputs"][0]
        refused(post(client, {"inputs": [{**tensor, "shape": [1, 3]}]}), 422, "inputs[0].data", "[1, 3]", "flat")
        refused(post(client, {**GOOD, "outputs": [{"name": "logits"}]}), 422, "outputs[0].name", "'logits'", "p_value")
        refused(post(client, {"inputs": [{**tensor, "data": [[3e38] * 4] * 2}]}), 422, "not finite")
        refused(post(client, GOOD, Inference_Header_Content_Length="x"), 422, LENGTH)
        refused(post(client, GOOD, X_Request_Timeout="never"), 422, "X-Request-Timeout")
        refused(post(client, GOOD, X_Request_ID="a b"), 422, "X-Request-ID")

    def test_too_large(self, classification: Synthetic) -> None:
        with serving(Predictor.load(classification.path), Settings(max_body_bytes=1000, max_rows=1)) as client:
            refused(post(client, b" " * 1001), 413, "1000 bytes")
            refused(post(client, GOOD), 413, "at most 1")

    def test_media_types(self, client: Client) -> None:
        refused(post(client, GOOD, content_type="text/plain"), 415, "text/plain", "application/octet-stream")
        refused(post(client, GOOD, content_encoding="br"), 415, "gzip")
        refused(post(client, GOOD, content_encoding="gzip"), 400, "gzip")

    def test_a_bug(self, classification: Synthetic) -> None:
        class Broken(Predictor):
            def predict(self, inputs: Any) -> Any:
                raise RuntimeError("secret details")

        with serving(Broken.load(classification.path)) as client:
            assert "secret" not in refused(post(client, GOOD), 500)

    @pytest.mark.parametrize("options", [{"parameters": {"timeout": 1}}, {}])
    def test_the_deadline(self, client: Client, options: Json) -> None:
        headers = {} if options else {"X_Request_Timeout": "0.000001"}
        before = missed(client)
        refused(post(client, {**GOOD, **options}, **headers), 504)
        after = missed(client)
        assert after["deadline_client"] == before["deadline_client"] + 1
        assert after["deadline"] == before["deadline"]

    def test_native_paths_keep_their_own_shape(self, client: Client) -> None:
        for path in ("/v2x", "/v1", "/predict/v2/"):
            assert client.get(path).headers["content-type"] == "application/problem+json"


class Slow(Predictor):
    """Announces that it computes, then waits until it is told to go on."""

    def __init__(self, bundle: Bundle) -> None:
        super().__init__(bundle)
        self.entered, self.proceed = threading.Semaphore(0), threading.Event()

    def predict(self, inputs: Any) -> Prediction:
        self.entered.release()
        assert self.proceed.wait(TIMEOUT)
        return super().predict(inputs)


def start(client: Client) -> Any:
    return client.start("POST", INFER, content=json.dumps(GOOD).encode())


@pytest.mark.usefixtures("impatient")
def test_a_full_queue(classification: Synthetic) -> None:
    slow = Slow(read_bundle(classification.path))
    with serving(slow, Settings(max_queue_rows=2)) as client:
        running = [start(client)]
        assert slow.entered.acquire(timeout=TIMEOUT)
        running.append(start(client))
        while client.app.state.runtime.store.find().queue_rows < 2:
            client.portal.call(asyncio.sleep, 0)
        response = post(client, GOOD)
        refused(response, 429, "full")
        assert int(response.headers["retry-after"]) >= 1
        slow.proceed.set()
        assert [one.result(TIMEOUT).status_code for one in running] == [200, 200]
