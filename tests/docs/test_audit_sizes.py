"""docs/serving.md and the setting's description say how many answers the audit trail holds: measured, and counted."""

import re
from pathlib import Path

import numpy as np
import pytest
from pydantic_core import to_json

from demur.service.inference.predictor import Predictor
from demur.service.settings import Settings
from tests.support.client import serving
from tests.support.digits import GOLDEN, digits

PAGE = Path(__file__).parents[2] / "docs/serving.md"
ROW = re.compile(r"\| (.+) \| ([\d,]+) \| ([\d,]+) \| ([\d.]+) (hours|seconds) \|")
RATE, UNITS = 100, {"hours": 3600, "seconds": 1}
BYTES = Settings.model_fields["audit_bytes"].default


def table() -> dict[str, tuple[int, int, float]]:
    """What a line is of -> its bytes, how many there is room for, and for how many seconds."""
    text = PAGE.read_text().partition("<!-- sizes of the audit trail -->")[2].partition("<!-- end of")[0]
    return {
        name: (int(size.replace(",", "")), int(count.replace(",", "")), float(time) * UNITS[unit])
        for name, size, count, time, unit in ROW.findall(text)
    }


@pytest.mark.parametrize("what", table())
def test_the_numbers_of_a_row_agree(what: str) -> None:
    size, count, seconds = table()[what]
    assert count == pytest.approx(BYTES / size, rel=0.01)
    assert seconds == pytest.approx(BYTES / size / RATE, rel=0.15)


def measured(folder: Path, inputs: bool) -> float:
    """The mean bytes of a line about a golden digit."""
    file = folder / "audit.jsonl"
    with serving(Predictor.load(GOLDEN / "v1" / "bundle"), Settings(audit_file=file, audit_inputs=inputs)) as client:
        assert client.predict({"inputs": digits()[:200].tolist()}).status_code == 200
    sizes = [len(line) for line in file.read_bytes().splitlines(keepends=True) if b'"event"' not in line]
    assert len(sizes) == 200
    return float(np.mean(sizes))


def test_the_bytes_of_a_line_are_measured(tmp_path: Path) -> None:
    plain, kept, row, _, photograph = (size for size, _, _ in table().values())
    without = measured(tmp_path, inputs=False)
    assert plain == pytest.approx(without, rel=0.05)
    (tmp_path / "audit.jsonl").unlink()
    assert kept == pytest.approx(measured(tmp_path, inputs=True), rel=0.05)
    random = np.random.default_rng(0)
    numbers = random.normal(size=(100, 50)).astype(np.float32)
    assert row == pytest.approx(without + len(to_json(numbers.tolist())) / 100, rel=0.05)
    picture = (random.integers(0, 256, (3, 224, 224)) / 255).astype(np.float32)
    size = len(to_json(picture.tolist()))
    assert photograph == pytest.approx(without + size, rel=0.05)
    assert size < 20 * picture.size


def test_the_setting_says_so_too() -> None:
    described = Settings.model_fields["audit_bytes"].description or ""
    plain, _, seconds = next(iter(table().values()))
    assert f"some {plain} bytes" in described
    assert "four hours at 100 answers a second" in described
    assert round(seconds / 3600) == 4
