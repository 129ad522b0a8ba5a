"""docs/rooms.py measures and draws what the imports say, and ARCHITECTURE.md shows it."""

import subprocess
import sys
from pathlib import Path

from docs import rooms
from docs.marked import replace_part
from docs.rooms import Rooms
from tests.support.server import ROOT

DIAMOND = {"top": {"left", "right", "ground"}, "left": {"ground"}, "right": {"ground"}, "ground": set[str]()}


def rooms_of(edges: dict[str, set[str]]) -> Rooms:
    return Rooms("package", 1, 1, edges, frozenset({"ground"}))


def test_the_drawings_are_up_to_date() -> None:
    page = (ROOT / "ARCHITECTURE.md").read_text()
    for name, content in rooms.drawings(rooms.measures(ROOT)).items():
        assert page == replace_part(page, name, content), "run `make rooms`"


def test_levels_and_arrows() -> None:
    found = rooms_of(DIAMOND)
    assert (found.levels, found.arrows, found.cycles) == (3, 5, set())
    assert found.direct()["top"] == {"left", "right"}
    assert 'room_ground["ground/"]' in found.drawing()
    assert 'room_top["top.py"]' in found.drawing()


def test_a_cycle_counts_as_one_level_and_keeps_its_arrows() -> None:
    edges = {"a": {"b", "low"}, "b": {"a", "low"}, "low": set[str]()}
    found = rooms_of(edges)
    assert found.cycles == {frozenset({"a", "b"})}
    assert found.levels == 2
    assert found.direct() == edges


def test_another_checkout_is_measured(tmp_path: Path) -> None:
    files = {
        "demur/__init__.py": "",
        "demur/cli.py": "from demur.offline.fit import fit",
        "demur/offline/__init__.py": "from demur.offline.fit import fit",
        "demur/offline/fit.py": "from demur.offline.data.loaders import load\nimport demur.offline.config",
        "demur/offline/config.py": "",
        "demur/offline/data/__init__.py": "",
        "demur/offline/data/loaders.py": "from demur.offline.data.shifts import shift",
        "demur/offline/data/shifts.py": "def late():\n    import demur.offline.config",
        "demur/offline/data/noise.py": "",
    }
    for name, text in files.items():
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    command = [sys.executable, "-m", "docs.rooms", "--root", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[2:] == [
        "| `demur` | 7 | 3 | 2 | 2 | 1 | 0 |",
        "| `demur.offline` | 6 | 3 | 3 | 3 | 3 | 0 |",
    ]
