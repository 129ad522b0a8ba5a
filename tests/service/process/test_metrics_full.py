"""A full disk for metrics: the service goes on without shared metrics, and logs it."""

import json
import multiprocessing
import os
import resource
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.mmap_dict import MmapedDict

from demur.service.process.metrics_files import FIRST_BYTES, ReservedDict
from tests.support.bundles import Synthetic
from tests.support.requests import GOOD
from tests.support.server import TIMEOUT, running

BODY = json.dumps({"inputs": GOOD}).encode()
pytestmark = pytest.mark.skipif(not hasattr(os, "posix_fallocate"), reason="needs Linux")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system with room for a few pages."""
    if os.geteuid() != 0 or shutil.which("mount") is None:
        pytest.skip("needs root")
    folder = tmp_path / "small"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16k", "tmpfs", str(folder)], check=False)
    if mounted.returncode:
        pytest.skip("may not mount")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.mark.slow
@pytest.mark.parametrize("workers", ["1", "2"])
def test_the_service_outlives_a_full_folder(classification: Synthetic, small_disk: Path, workers: str) -> None:
    with running(classification.path, PROMETHEUS_MULTIPROC_DIR=str(small_disk), DEMUR_WORKERS=workers) as server:
        for _ in range(10):
            assert server.request("POST", "/predict", BODY)[0] == 200
        assert server.request("GET", "/metrics")[0] == 200
        server.wait_for("No space left on device: this process's metrics are not shared")
        assert server.terminate() == 0
        assert not [line for line in server.lines if "starting another" in line or "Traceback" in line]


def _grow(folder: str, pages: int) -> None:
    """Create more and more series, in a process with a limit on the size of its files."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (pages * FIRST_BYTES, pages * FIRST_BYTES))
    shared = ReservedDict(f"{folder}/counter_1.db")
    for number in range(5000):
        shared.write_value(f"series {number} {'x' * 60}", float(number), 0.0)
    for number in range(5000):
        assert shared.read_value(f"series {number} {'x' * 60}")[0] == number


def test_what_was_counted_until_the_disk_was_full_stays_there(tmp_path: Path) -> None:
    process = multiprocessing.get_context("spawn").Process(target=_grow, args=(str(tmp_path), 2))
    process.start()
    process.join(TIMEOUT)
    assert process.exitcode == 0
    kept = list(MmapedDict.read_all_values_from_file(tmp_path / "counter_1.db"))
    assert 1000 < len(kept) < 5000
    assert all(value == number for number, (_, value, _, _) in enumerate(kept))
