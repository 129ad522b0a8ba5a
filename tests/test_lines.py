"""The product does not grow: `make check` counts its lines."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.server import ROOT


def count(root: Path) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, str(ROOT / ".ci/lines.py"), str(root)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


@pytest.fixture
def product(tmp_path: Path) -> Path:
    """Six lines, those behind a link counted once."""
    for folder in ("service/playground", "offline", "demur"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "demur/service").symlink_to("../service")
    (tmp_path / "service/app.py").write_text("a = 1\n\nb = 2\n")
    (tmp_path / "service/playground/main.js").write_text("let a;\n")
    (tmp_path / "offline/report.html").write_text("<p>\n")
    (tmp_path / "demur/cli.py").write_text("c = 3\n")
    (tmp_path / "service/BUNDLE.md").write_text("Pages\ndo\nnot\ncount.\n")
    return tmp_path


@pytest.mark.parametrize(("limit", "status"), [(7, 0), (6, 0), (5, 1)])
def test_more_lines_than_allowed_fail(product: Path, limit: int, status: int) -> None:
    (product / "pyproject.toml").write_text(f"[tool.demur]\nlines = {limit}\n")
    done = count(product)
    assert done.returncode == status
    for part in (f"6 lines of at most {limit}", "service 4", "offline 1", "demur 1", "Python 4", "JavaScript 1"):
        assert part in done.stdout
    assert ("expected at most 5" in done.stderr) == bool(status)


def test_ours_are_within_the_limit() -> None:
    assert count(ROOT).returncode == 0
