"""What a dashboard reads from the histograms is what the service computed: also where inputs have changed."""

import io
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from demur.service.inference.predictor import Predictor
from demur.service.monitoring.metrics import P_VALUES
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
BUCKET = "demur_ood_p_value_bucket"
COUNT = f'{BUCKET}{{le="+Inf"}}'


@dataclass(frozen=True)
class Median:
    """Of values in a histogram, whose median is interpolated between the ends of its bucket."""

    low: float
    high: float
    interpolated: float

    @classmethod
    def of(cls, values: Array, bounds: Sequence[float]) -> "Median":
        ends = [0.0, *bounds]
        place = next(i for i, bound in enumerate(ends) if (values <= bound).sum() >= len(values) / 2)
        low, high = ends[place - 1 : place + 1]
        below, inside = (values <= low).sum(), ((low < values) & (values <= high)).sum()
        return cls(low, high, low + (high - low) * float((len(values) / 2 - below) / inside))


def true_medians() -> dict[str, Median]:
    predictor = Predictor.load(BUNDLE)
    found = {kind: predictor.predict(np.ascontiguousarray(change(digits()))) for kind, change in KINDS.items()}
    return {kind: Median.of(prediction.p_value, P_VALUES) for kind, prediction in found.items()}


def send(server: Server, images: Array) -> None:
    stream = io.BytesIO()
    np.save(stream, np.ascontiguousarray(images))
    assert server.request("POST", "/predict", stream.getvalue(), {"Content-Type": "application/x-npy"})[0] == 200


@needs_prometheus
@pytest.mark.parametrize("workers", ["1", "2"])
def test_prometheus_reads_the_medians_that_are_true(tmp_path: Path, workers: str) -> None:
    """Upright, turned and inverted digits, 719 of each, one kind after the other."""
    expected, medians = true_medians(), dict[str, float]()
    with running(BUNDLE, DEMUR_WORKERS=workers) as server, scraping(server.port, tmp_path) as prometheus:
        prometheus.wait_for(COUNT, 0)
        for number, (kind, change) in enumerate(KINDS.items()):
            since = prometheus.value(f"timestamp({COUNT})")
            send(server, change(digits()))
            prometheus.wait_for(COUNT, (number + 1) * len(digits()))
            grown = f"sum by (model, version, le) ({BUCKET} - {BUCKET} @ {since})"
            found = prometheus.value(f"histogram_quantile(0.5, {grown})")
            assert found is not None
            medians[kind] = found
        rules = [rule for group in prometheus.get("/api/v1/rules")["groups"] for rule in group["rules"]]
        assert {rule["health"] for rule in rules} <= {"ok", "unknown"}
    for kind, true in expected.items():  # rounding may move one of them over an end of the bucket
        assert medians[kind] == pytest.approx(true.interpolated, abs=0.02 * (true.high - true.low)), kind
    upright, turned_, inverted_ = medians.values()
    assert abs(upright - 0.5) < 0.1
    assert inverted_ <= turned_ < 0.1
