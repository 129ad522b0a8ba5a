"""service/monitoring/array_histogram.py: the samples are those of prometheus-client's own histogram."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from prometheus_client import CollectorRegistry, Histogram, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

from demur.service.monitoring.array_histogram import ArrayHistogram

BOUNDS = {"positive": (0.1, 0.25, 0.5, 1.0, 3.0), "from 0 on": (0.0, 0.5, 2.0)}
NAMES = ("model", "version")


def values(bounds: tuple[float, ...]) -> np.ndarray:
    return np.concatenate([bounds, np.random.default_rng(0).normal(0.5, 2, 500), [-1e9, 0.0, 1e9]]).astype(np.float64)


def text(registry: CollectorRegistry) -> list[str]:
    """Without the times at which prometheus-client's own histograms were made."""
    lines = generate_latest(registry).decode().splitlines()
    return [line for line in lines if "_created" not in line and "_sum{" not in line]


@pytest.mark.parametrize("bounds", BOUNDS.values(), ids=BOUNDS.keys())
@pytest.mark.parametrize("several", [1, 8, 500])
def test_the_samples_are_those_of_a_histogram(bounds: tuple[float, ...], several: int) -> None:
    together, alone = CollectorRegistry(), CollectorRegistry()
    array = ArrayHistogram("x", "What it is.", NAMES, bounds, together)
    usual = Histogram("x", "What it is.", NAMES, buckets=bounds, registry=alone)
    for version in ("1", "2"):
        for start in range(0, len(values(bounds)), several):
            array.labels("m", version).observe(values(bounds)[start : start + several])
        for value in values(bounds).tolist():
            usual.labels("m", version).observe(value)
    assert text(together) == text(alone)
    one = {"model": "m", "version": "1"}
    found, expected = (registry.get_sample_value("x_sum", one) for registry in (together, alone))
    assert found == (expected if expected is None else pytest.approx(expected))
    array.remove("m", "1")
    usual.remove("m", "1")
    array.remove("m", "3")
    assert text(together) == text(alone)


def test_a_name_is_registered_once() -> None:
    registry = CollectorRegistry()
    ArrayHistogram("x", "What it is.", NAMES, (1.0,), registry)
    with pytest.raises(ValueError, match="Duplicated"):
        ArrayHistogram("x", "Again.", NAMES, (1.0,), registry)


OBSERVE = """
import numpy as np
from prometheus_client import CollectorRegistry
from demur.service.monitoring.array_histogram import ArrayHistogram
found = ArrayHistogram("x", "What it is.", ("model", "version"), (1.0, 2.0), CollectorRegistry()).labels("m", "1")
found.observe(np.array([0.5, 1.5, 1.5, 9.0]))
found.observe(np.full(20, 2.0))
"""


def test_processes_add_up(tmp_path: Path) -> None:
    environment = {**os.environ, "PROMETHEUS_MULTIPROC_DIR": str(tmp_path)}
    for _ in range(2):
        subprocess.run([sys.executable, "-c", OBSERVE], env=environment, check=True)
    registry = CollectorRegistry()
    MultiProcessCollector(registry, str(tmp_path))
    labels = {"model": "m", "version": "1"}
    for le, expected in (("1.0", 2), ("2.0", 46), ("+Inf", 48)):
        assert registry.get_sample_value("x_bucket", {**labels, "le": le}) == expected
    assert registry.get_sample_value("x_count", labels) == 48
    assert registry.get_sample_value("x_sum", labels) == 2 * (12.5 + 40)
