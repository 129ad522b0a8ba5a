"""What a dashboard reads from the histograms is what the service computed: also where inputs have changed."""

import io
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from demur.service.bundle import read_bundle
from demur.service.inference.predictor import Prediction, Predictor
from demur.service.monitoring.metrics import DEVIATIONS, P_VALUES
from tests.support.digits import GOLDEN, Array, digits, inverted, turned
from tests.support.live_prometheus import scraping
from tests.support.server import Server, running

pytestmark = pytest.mark.slow

needs_prometheus = pytest.mark.skipif(
    shutil.which("prometheus") is None, reason="prometheus is not on PATH (Debian package: prometheus)"
)
BUNDLE = GOLDEN / "v1_fixed" / "bundle"
KINDS: dict[str, Callable[[Array], Array]] = {
    "upright": lambda images: images,
    "turned": turned,
    "inverted": inverted,
}
VARIANCE, P_VALUE = "demur_functional_variance_deviation", "demur_ood_p_value"
COUNT = f'{VARIANCE}_bucket{{le="+Inf"}}'
QUANTITIES: dict[str, Callable[[Prediction], Array]] = {
    VARIANCE: lambda found: found.variance.max(axis=1),
    P_VALUE: lambda found: found.p_value,
}


def true_medians() -> dict[str, dict[str, float]]:
    predictor = Predictor.load(BUNDLE)
    found = {kind: predictor.predict(np.ascontiguousarray(change(digits()))) for kind, change in KINDS.items()}
    return {
        name: {kind: float(np.median(of(prediction))) for kind, prediction in found.items()}
        for name, of in QUANTITIES.items()
    }


def deviation(value: float) -> float:
    """(value - m) / u, m the median of the calibration data: above it u is from it to their 95 % quantile, since the
    gate leaves nine in ten of them, both quartiles among them, without variance, so that nothing lies below."""
    lowest, _, median, high, highest = read_bundle(BUNDLE).calibration.reference["functional_variance"].tolist()
    assert 0 == lowest == median == high < highest
    return float(value / highest)


def bucket_of(value: float, bounds: Sequence[float]) -> tuple[float, float]:
    """Its ends: a histogram knows no more of a value."""
    return max((bound for bound in bounds if bound < value), default=0.0), min(x for x in bounds if x >= value)


def send(server: Server, images: Array) -> None:
    stream = io.BytesIO()
    np.save(stream, np.ascontiguousarray(images))
    assert server.request("POST", "/predict", stream.getvalue(), {"Content-Type": "application/x-npy"})[0] == 200


@needs_prometheus
@pytest.mark.parametrize("workers", ["1", "2"])
def test_prometheus_reads_the_medians_that_are_true(tmp_path: Path, workers: str) -> None:
    """Upright, turned and inverted digits, 719 of each, one kind after the other."""
    expected, medians = true_medians(), dict[str, dict[str, float]]()
    with running(BUNDLE, DEMUR_WORKERS=workers) as server, scraping(server.port, tmp_path) as prometheus:
        prometheus.wait_for(COUNT, 0)
        for number, (kind, change) in enumerate(KINDS.items()):
            since = prometheus.value(f"timestamp({COUNT})")
            send(server, change(digits()))
            prometheus.wait_for(COUNT, (number + 1) * len(digits()))
            for name in QUANTITIES:
                bucket = f"{name}_bucket"
                grown = f"sum by (model, version, le) ({bucket} - {bucket} @ {since})"
                found = prometheus.value(f"histogram_quantile(0.5, {grown})")
                assert found is not None
                medians.setdefault(name, {})[kind] = found
        rules = [rule for group in prometheus.get("/api/v1/rules")["groups"] for rule in group["rules"]]
        assert {rule["health"] for rule in rules} <= {"ok", "unknown"}
    for name in QUANTITIES:
        for kind in KINDS:
            true = expected[name][kind]
            low, high = bucket_of(true, P_VALUES) if name == P_VALUE else bucket_of(deviation(true), DEVIATIONS)
            assert low <= medians[name][kind] <= high, (name, kind)
    upright, turned_, inverted_ = medians[VARIANCE].values()
    assert abs(upright) < 0.5
    assert 1 < turned_ < inverted_
