"""service/environment/cpu.py on made-up control groups."""

import os
from pathlib import Path

import pytest

from demur.service.environment.cpu import available_cpus

HOST_CPUS = 8


@pytest.fixture(autouse=True)
def _eight_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(HOST_CPUS)), raising=False)


def version_2(folder: Path, text: str) -> Path:
    (folder / "cpu.max").write_text(text)
    return folder


def version_1(folder: Path, quota: str, period: str = "100000\n") -> Path:
    (folder / "cpu").mkdir()
    (folder / "cpu" / "cpu.cfs_quota_us").write_text(quota)
    (folder / "cpu" / "cpu.cfs_period_us").write_text(period)
    return folder


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("max 100000\n", HOST_CPUS),
        ("200000 100000\n", 2),
        ("100000 100000\n", 1),
        ("150000 100000\n", 2),
        ("50000 100000\n", 1),
        ("1000 100000\n", 1),
        ("25000 10000\n", 3),
        ("1600000 100000\n", HOST_CPUS),
        ("", HOST_CPUS),
        ("200000", HOST_CPUS),
        ("200000 0", HOST_CPUS),
        ("-1 100000", HOST_CPUS),
        ("nonsense", HOST_CPUS),
        ("² ³", HOST_CPUS),
    ],
)
def test_version_2(tmp_path: Path, text: str, expected: int) -> None:
    assert available_cpus(version_2(tmp_path, text)) == expected


@pytest.mark.parametrize(
    ("quota", "expected"),
    [("-1\n", HOST_CPUS), ("300000\n", 3), ("250000\n", 3), ("10000\n", 1), ("9900000\n", HOST_CPUS), ("x", HOST_CPUS)],
)
def test_version_1(tmp_path: Path, quota: str, expected: int) -> None:
    assert available_cpus(version_1(tmp_path, quota)) == expected


def test_version_1_without_a_period(tmp_path: Path) -> None:
    assert available_cpus(version_1(tmp_path, "200000\n", "0\n")) == HOST_CPUS


def test_version_2_goes_before_version_1(tmp_path: Path) -> None:
    assert available_cpus(version_1(version_2(tmp_path, "200000 100000\n"), "400000\n")) == 2


def test_no_control_group(tmp_path: Path) -> None:
    assert available_cpus(tmp_path / "nothing") == HOST_CPUS


def test_the_scheduler_may_allow_fewer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {3}, raising=False)
    assert available_cpus(version_2(tmp_path, "400000 100000\n")) == 1


@pytest.mark.parametrize(("count", "expected"), [(6, 6), (None, 1)])
def test_systems_without_affinity(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int | None, expected: int
) -> None:
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: count)
    assert available_cpus(tmp_path) == expected


def test_the_real_system() -> None:
    assert 1 <= available_cpus() <= HOST_CPUS
