"""`python -m benchmarks table_rejection` on one small data set."""

from pathlib import Path

import pytest
import torch

from benchmarks.core.settings import Settings
from benchmarks.experiments import kept
from benchmarks.experiments.table_rejection import run, split, trained
from probity.offline.runtime.progress import silent


def test_raw_and_standardised_columns_are_the_same_rows() -> None:
    raw, standardised = split("wine", "raw", 1), split("wine", "standardised", 1)
    assert sum(len(part[0]) for part in (raw.train, raw.held_out, raw.test)) == 178
    assert torch.equal(raw.test[1], standardised.test[1])
    inside = trained(raw, "raw", 1, 2)
    torch.testing.assert_close(inside.get_submodule("0")(raw.test[0]), standardised.test[0])


def test_quality_and_shares_are_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(kept, "CACHE", tmp_path / "cache")
    settings = Settings(True, 1, tmp_path, silent, tmp_path, ("wine",))
    found = run(settings)
    assert found == run(settings)
    assert [row["columns"] for row in found["rows"]] == ["standardised", "raw"]
    for row in found["rows"]:
        assert row["labels_differ"] == 0
        assert row["plain"].keys() == row["bundle"].keys() == {"log_likelihood", "ece"}
        assert all(0 <= share <= 1 for share in row["rejected"].values())
        assert row["rejected"]["scaled-by-100"] == 1
