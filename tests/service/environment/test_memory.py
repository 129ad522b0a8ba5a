"""service/environment/memory.py: the memory that is left, and that is taken, from the kernel's files."""

import os
from pathlib import Path

import pytest

from demur.service.environment.memory import available_bytes, resident_bytes

MIB = 2**20


def write(folder: Path, **files: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text)
    return folder


@pytest.mark.parametrize(
    ("host_kib", "limit", "used", "statistics", "expected"),
    [
        (4096, "max", "100", "", 4 * MIB),
        (4096, str(3 * MIB), str(MIB), "anon 5\ninactive_file 0\n", 2 * MIB),
        (4096, str(3 * MIB), str(MIB), f"file 7\ninactive_file {MIB // 2}\n", 2 * MIB + MIB // 2),
        (4096, str(3 * MIB), str(2 * MIB), f"inactive_file {MIB // 2}\nactive_file {MIB}\n", 2 * MIB + MIB // 2),
        (1024, str(3 * MIB), str(MIB), "", MIB),
        (4096, str(MIB), str(2 * MIB), "", 0),
    ],
)
def test_the_container_counts_where_it_leaves_less(
    tmp_path: Path, host_kib: int, limit: str, used: str, statistics: str, expected: int
) -> None:
    meminfo = write(tmp_path, meminfo=f"MemTotal: 9 kB\nMemAvailable:    {host_kib} kB\n") / "meminfo"
    files = {"memory__max": f"{limit}\n", "memory__current": f"{used}\n", "memory__stat": statistics}
    assert available_bytes(write(tmp_path / "cgroup", **files), meminfo) == expected


def test_the_first_version_of_cgroups_is_read_too(tmp_path: Path) -> None:
    files = {
        "memory__limit_in_bytes": "1000",
        "memory__usage_in_bytes": "600",
        "memory__stat": "total_inactive_file 50\n",
    }
    write(tmp_path / "memory", **files)
    assert available_bytes(tmp_path, tmp_path / "nothing") == 450


def test_it_may_be_unknown(tmp_path: Path) -> None:
    assert available_bytes(tmp_path, tmp_path / "nothing") is None


@pytest.mark.skipif(not Path("/proc/meminfo").exists(), reason="needs Linux's /proc")
def test_here_there_is_some() -> None:
    found = available_bytes()
    assert found is not None
    assert found > MIB


def test_what_this_process_takes_is_in_pages(tmp_path: Path) -> None:
    statistics = tmp_path / "statm"
    statistics.write_text("9000 250 30 1 0 400 0\n")
    assert resident_bytes(statistics) == 250 * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.parametrize("text", [None, "", "9000", "9000 many"])
def test_what_this_process_takes_may_be_unknown(text: str | None, tmp_path: Path) -> None:
    statistics = tmp_path / "statm"
    if text is not None:
        statistics.write_text(text)
    assert resident_bytes(statistics) is None
