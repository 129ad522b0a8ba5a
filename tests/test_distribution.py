"""What we are called: `demur`, as a distribution, a package and a command. Nothing is published yet, so no text may
tell to install that name: whoever registers it first runs code at every reader's. The remedy is always the checkout.
"""

import importlib.metadata
import re
import subprocess
import tomllib
from pathlib import Path

import pytest

from tests.support.server import ROOT

NAME = "demur"
FORMER = "pro" + "bity"  # somebody else's in the index: one line of the changelog has it
# How a package is asked for: with extras or a version, or by an installer, options and other packages before it.
REQUIRED = re.compile(
    r"\bdemur\s*(?:\[[\w, -]+\]|[=~!<>]=)"
    r"|\b(?:pip3?|pipx|uvx?|poetry|conda|requirement)\b[^\n]*?\b(?:install|add|run|download)\b[^\n]*[\s'\"]demur(?![\w./-])"
    r"|\buvx\s+demur(?![\w-])"
)
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def tracked() -> list[Path]:
    """Every file of the checkout but this one, and links."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode != 0:
        pytest.skip("not a git checkout")
    paths = [ROOT / name for name in listed.stdout.split("\0") if name]
    return [path for path in paths if path.is_file() and path != Path(__file__)]


@pytest.mark.parametrize(
    "text",
    ["pip install demur", "pip install 'demur[offline]'", "demur==1.0", "uv add -q demur", "pip install -U 'demur'"],
)
def test_the_search_finds_what_is_not_published(text: str) -> None:
    assert REQUIRED.search(text)


@pytest.mark.parametrize(
    "text", ["pip install '.[offline]'", "version('demur')", "pip install ./demur/x", "demur serve digits"]
)
def test_the_search_lets_ours_pass(text: str) -> None:
    assert not REQUIRED.search(text)


def test_no_text_asks_for_a_package_that_is_not_published() -> None:
    texts = {path: content.decode() for path in tracked() if b"\0" not in (content := path.read_bytes())}
    found = {str(path.relative_to(ROOT)): match[0] for path, text in texts.items() if (match := REQUIRED.search(text))}
    assert found == {}


def test_the_former_name_stands_in_one_line_of_the_changelog_alone() -> None:
    found = {
        str(path.relative_to(ROOT)): count
        for path in tracked()
        if (count := len(re.findall(FORMER.encode(), str(path.relative_to(ROOT)).encode() + path.read_bytes(), re.I)))
    }
    assert found == {"CHANGELOG.md": 1}


def test_the_installed_distribution_has_our_name_and_brings_the_command() -> None:
    distribution = importlib.metadata.distribution(NAME)
    assert distribution.metadata["Name"] == PYPROJECT["project"]["name"] == NAME
    assert [point.name for point in distribution.entry_points] == [NAME]
