"""What a dashboard reads from the histograms is what the service computed: also where inputs have changed."""

import io
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
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


def deviations(found: Prediction) -> Array:
    """(v - m) / u of the largest variances v, m the median of the calibration data: above it u is from it to their 95 %
    quantile, since the gate leaves nine in ten of them, both quartiles among them, without variance."""
    lowest, _, median, high, highest = read_bundle(BUNDLE).calibration.reference["functional_variance"].tolist()
    assert 0 == lowest == median == high < highest
    return found.variance.max(axis=1) / highest


QUANTITIES: dict[str, tuple[Callable[[Prediction], Array], Sequence[float]]] = {
    VARIANCE: (deviations, DEVIATIONS),
    P_VALUE: (lambda found: found.p_value, P_VALUES),
}


@dataclass(frozen=True)
class Median:
    """Of values in a histogram, whose median is interpolated between the ends of its bucket."""

    low: float
    high: float
    interpolated: float

    @classmethod
    def of(cls, values: Array, bounds: Sequence[float]) -> "Median":
        ends = [0.0 if bounds[0] > 0 else -np.inf, *bounds]
        place = next(i for i, bound in enumerate(ends) if (values <= bound).sum() >= len(values) / 2)
        low, high = ends[place - 1 : place + 1]
        below, inside = (values <= low).sum(), ((low < values) & (values <= high)).sum()
        return cls(low, high, low + (high - low) * float((len(values) / 2 - below) / inside))


def true_medians() -> dict[str, dict[str, Median]]:
    predictor = Predictor.load(BUNDLE)
    found = {kind: predictor.predict(np.ascontiguousarray(change(digits()))) for kind, change in KINDS.items()}
    return {
        name: {kind: Median.of(of(prediction), bounds) for kind, prediction in found.items()}
        for name, (of, bounds) in QUANTITIES.items()
    }


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
            true = expected[name][kind]  # rounding may move one of them over an end of the bucket
            near = pytest.approx(true.interpolated, abs=0.02 * (true.high - true.low))
            assert medians[name][kind] == near, (name, kind)
    upright, turned_, inverted_ = medians[VARIANCE].values()
    assert abs(upright) < 0.5
    assert 1 < turned_ < inverted_
