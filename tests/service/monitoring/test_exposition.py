"""What scrapers get: Prometheus' own text or OpenMetrics, in gzip for those that take it, and no times of creation."""

import gzip
import json

import pytest
from prometheus_client.openmetrics import parser as openmetrics
from prometheus_client.parser import text_string_to_metric_families

from tests.support.bundles import Synthetic
from tests.support.processes import wait_until
from tests.support.requests import GOOD
from tests.support.server import running

# What Prometheus 3 sends.
ACCEPT = "application/openmetrics-text;version=1.0.0;q=0.6,text/plain;version=0.0.4;q=0.5,*/*;q=0.1"
MOVING = ("process_", "demur_resident_memory", "demur_http_request", "python_gc")


def samples(text: bytes) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """By name and labels, without those that a scrape itself changes."""
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
        if not sample.name.startswith(MOVING)
    }


@pytest.mark.parametrize("workers", ["1", "2"])
def test_it_is_compressed_for_those_that_ask(classification: Synthetic, workers: str) -> None:
    with running(classification.path, DEMUR_WORKERS=workers) as server:
        assert server.request("POST", "/predict", json.dumps({"inputs": GOOD}).encode())[0] == 200
        _, headers, text = server.request("GET", "/metrics")
        _, packed_headers, packed = server.request("GET", "/metrics", headers={"Accept-Encoding": "gzip"})
    assert headers["content-type"] == packed_headers["content-type"]
    assert headers["content-type"].startswith("text/plain")
    assert "content-encoding" not in headers
    assert (packed_headers["content-encoding"], packed_headers["vary"]) == ("gzip", "Accept, Accept-Encoding")
    assert len(packed) < len(text) / 4
    found, unpacked = samples(text), samples(gzip.decompress(packed))
    assert found.keys() == unpacked.keys()
    if workers == "1":  # the others are a little behind
        assert found == unpacked
    assert found
    assert not [name for name, _ in found if name.endswith("_created")]


@pytest.mark.parametrize("workers", ["1", "2"])
def test_openmetrics_is_strictly_that_and_says_the_same(classification: Synthetic, workers: str) -> None:
    with running(classification.path, DEMUR_WORKERS=workers) as server:
        assert server.request("POST", "/predict", json.dumps({"inputs": GOOD}).encode())[0] == 200
        wait_until(lambda: b"demur_predictions_total" in server.request("GET", "/metrics")[2])
        text = server.request("GET", "/metrics")[2]
        _, headers, found = server.request("GET", "/metrics", headers={"Accept": ACCEPT, "Accept-Encoding": "gzip"})
    assert headers["content-type"] == "application/openmetrics-text; version=1.0.0; charset=utf-8"
    families = list(openmetrics.text_string_to_metric_families(gzip.decompress(found).decode()))
    names = {(one.name, tuple(sorted(one.labels.items()))) for family in families for one in family.samples}
    assert {name for name in names if not name[0].startswith(MOVING)} == samples(text).keys()
    assert "demur_ood_p_value" in {family.name for family in families if family.type == "histogram"}
