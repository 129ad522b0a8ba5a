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
    """Eight lines, those behind a link counted once."""
    for folder in ("service/playground", "offline", "demur"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "demur/service").symlink_to("../service")
    (tmp_path / "service/app.py").write_text("a = 1\n\nb = 2\n")
    (tmp_path / "service/playground/main.js").write_text("let a;\n")
    (tmp_path / "offline/report.html").write_text("<p>\n")
    (tmp_path / "offline/report.css").write_text("p {}\n")
    (tmp_path / "offline/more.mjs").write_text("let b;\n")
    (tmp_path / "demur/cli.py").write_text("c = 3\n")
    (tmp_path / "service/BUNDLE.md").write_text("Pages\ndo\nnot\ncount.\n")
    return tmp_path


@pytest.mark.parametrize(("limit", "status"), [(9, 0), (8, 0), (7, 1)])
def test_more_lines_than_allowed_fail(product: Path, limit: int, status: int) -> None:
    (product / "pyproject.toml").write_text(f"[tool.demur]\nlines = {limit}\n")
    done = count(product)
    assert done.returncode == status
    for part in (
        f"8 lines of at most {limit}",
        "service 4",
        "offline 3",
        "demur 1",
        ".py 4",
        ".js 1",
        ".mjs 1",
        ".css 1",
    ):
        assert part in done.stdout
    assert ("expected at most 7" in done.stderr) == bool(status)


@pytest.mark.parametrize("how", ["another link", "no folder", "one long line"])
def test_nothing_passes_by_uncounted(product: Path, how: str) -> None:
    (product / "pyproject.toml").write_text("[tool.demur]\nlines = 1000\n")
    if how == "another link":
        (product / "demur/more").symlink_to("../elsewhere")
    elif how == "no folder":
        (product / "offline").rename(product / "elsewhere")
    else:
        (product / "service/app.py").write_text("a = 1;" * 100)
    assert count(product).returncode == 1


def test_ours_are_within_the_limit_and_make_check_says_so() -> None:
    assert count(ROOT).returncode == 0
    check = (ROOT / "Makefile").read_text().partition("\ncheck: ")[2].partition("\n\n")[0]
    assert ".ci/lines.py" in check
