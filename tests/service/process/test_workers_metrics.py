"""What several workers say of their models after a bundle was replaced: that of the one that serves, and no other."""

import re
from pathlib import Path
from typing import Any

import pytest

from demur.service.bundle import read_manifest
from demur.service.environment.memory import resident_bytes
from tests.service.process.test_workers import predict, two_workers, wait_for_metric
from tests.support.bundles import FEATURE_SPEC, Synthetic, write_linear
from tests.support.processes import children_of
from tests.support.server import Server

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs Linux's /proc")
WATCHED = {"DEMUR_WATCH_SECONDS": "0.2"}


def bundle(folder: Path, version: str, seed: int, **changes: Any) -> Synthetic:
    return write_linear(folder, outputs=3, spec=FEATURE_SPEC, seed=seed, name="a", version=version, **changes)


def wait_for_both(server: Server, folder: Path, start: int) -> None:
    """Until each worker serves what is in the folder now."""
    digest = read_manifest(folder)[1]
    first = server.wait_for(f"digest {digest}", start)
    second = next(i for i, line in enumerate(server.lines) if i >= start and line == first.string)
    server.wait_for(f"digest {digest}", second + 1)


def samples(server: Server) -> dict[str, float]:
    lines = server.request("GET", "/metrics")[2].decode().splitlines()
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))}


def settled(server: Server, gone: str) -> dict[str, float]:
    """The samples once no series has `gone` in its labels: the old model answers its last requests first."""
    for _ in range(1000):
        found = samples(server)
        if not any(gone in name for name in found):
            return found
    pytest.fail("still there: " + ", ".join(name for name in samples(server) if gone in name))


def test_a_replaced_version_leaves_nothing_behind(tmp_path: Path) -> None:
    bundle(tmp_path / "a", "1", seed=0, alpha=0.1)
    with two_workers(tmp_path / "a", **WATCHED) as server:
        assert samples(server)['demur_false_reject_rate{model="a",version="1"}'] == 0.1
        predict(server)
        start = len(server.lines)
        bundle(tmp_path / "a", "2", seed=1, alpha=0.5)
        wait_for_both(server, tmp_path / "a", start)
        found = settled(server, 'version="1"')
        assert found['demur_false_reject_rate{model="a",version="2"}'] == 0.5
        predict(server)
        wait_for_metric(server, r"demur_predictions_total\{.*version=\"2\".*\}", 1)
        assert server.terminate() == 0


@pytest.mark.slow
def test_another_bundle_of_the_same_version_takes_its_place(tmp_path: Path) -> None:
    bundle(tmp_path / "a", "1", seed=0, alpha=0.1)
    digest = read_manifest(tmp_path / "a")[1]
    with two_workers(tmp_path / "a", **WATCHED) as server:
        predict(server)
        wait_for_metric(server, r"demur_ood_p_value_count\{.*\}", 1)
        start = len(server.lines)
        bundle(tmp_path / "a", "1", seed=1, alpha=0.5)
        wait_for_both(server, tmp_path / "a", start)
        found = settled(server, digest)
        assert found['demur_false_reject_rate{model="a",version="1"}'] == 0.5
        predict(server)
        wait_for_metric(server, r"demur_ood_p_value_count\{.*\}", 2)
        wait_for_metric(server, r"demur_predictions_total\{.*\}", 2)
        assert server.terminate() == 0


@pytest.mark.slow
def test_a_version_that_was_replaced_and_comes_back_is_there_again(tmp_path: Path) -> None:
    versions = [("1", 0), ("2", 1), ("1", 0)]
    bundle(tmp_path / "a", *versions[0])
    with two_workers(tmp_path / "a", **WATCHED) as server:
        predict(server)
        for version, seed in versions[1:]:
            start = len(server.lines)
            bundle(tmp_path / "a", version, seed)
            wait_for_both(server, tmp_path / "a", start)
        found = settled(server, 'version="2"')
        assert re.search(r'demur_model_info\{digest="\w+",name="a",version="1"\}', "\n".join(found))
        assert 'demur_false_reject_rate{model="a",version="1"}' in found
        assert server.terminate() == 0


def test_the_memory_is_that_of_all_workers(tmp_path: Path) -> None:
    bundle(tmp_path / "a", "1", seed=0)
    with two_workers(tmp_path / "a") as server:
        workers = [Path(f"/proc/{worker}/statm") for worker in children_of(server.process.pid)]
        for _ in range(1000):  # each says so once a second
            expected = sum(filter(None, map(resident_bytes, workers)))
            if samples(server)["demur_resident_memory_bytes"] == pytest.approx(expected, rel=0.1):
                break
        else:
            pytest.fail("it is not that of both")
        assert server.terminate() == 0
