"""The summary of `python -m benchmarks scores`."""

from typing import Any

import pytest

from benchmarks.experiments.scores import summarise


def test_a_summary_takes_all_rotations_together() -> None:
    def run(seed: int, more: float) -> dict[str, Any]:
        sets = {
            name: {"x": {"auroc": 0.5 + more * weight, "fpr": 0.2}}
            for name, weight in (("rotation-15", 1), ("rotation-30", 3), ("noise", 1))
        }
        return {"network": "mnist", "seed": seed, "sets": sets}

    found = summarise([run(0, 0.1), run(1, 0.2)])["mnist"]["x"]
    assert set(found) == {"rotations", "noise"}
    assert found["rotations"] == pytest.approx({"auroc": 0.8, "auroc_std": 0.1, "fpr": 0.2})
