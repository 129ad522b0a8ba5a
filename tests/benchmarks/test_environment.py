"""benchmarks/core/environment.py: what a file of results says of its machine."""

import sys

import pytest

from benchmarks.core.environment import environment


def test_the_command_is_told_without_the_folder_of_the_results(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["benchmarks", "drift", "--out", "/somewhere", "--threads", "1"])
    expected = ["python", "-m", "benchmarks", "drift", "--threads", "1"]
    assert environment("benchmarks", 1)["command"] == expected
    monkeypatch.setattr(sys, "argv", ["benchmarks", "drift"])
    assert environment("benchmarks", 1)["command"] == expected[:4]
