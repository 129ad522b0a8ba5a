"""What we are called: `probity-serve`. Nothing is published yet, so no text may tell to install that name, or
`probity`, which is another's: whoever registers a name runs code at every reader's. The remedy is always the checkout.
"""

import importlib.metadata
import re
import subprocess
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.support.server import ROOT

NAME = "probity-serve"
# How a package is asked for: with extras or a version, or by an installer, options and other packages before it.
REQUIRED = re.compile(
    r"\bprobity(?:-serve)?\s*(?:\[[\w, -]+\]|[=~!<>]=)"
    r"|\b(?:pip3?|pipx|uvx?|poetry|conda|requirement)\b[^\n]*?\b(?:install|add|run|download)\b[^\n]*[\s'\"]probity(?:-serve)?(?![\w./-])"
    r"|\buvx\s+probity(?:-serve)?(?![\w-])"
)
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT = PYPROJECT["project"]


def tracked_texts() -> list[Path]:
    """Every text file of the checkout but this one."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode != 0:
        pytest.skip("not a git checkout")
    paths = [ROOT / name for name in listed.stdout.split("\0") if name]
    return [path for path in paths if path.is_file() and path != Path(__file__) and b"\0" not in path.read_bytes()]


@pytest.mark.parametrize(
    "text",
    [
        "pip install probity",
        "pip install 'probity[offline]'",
        "probity==1.0",
        "uv add -q probity",
        "pip install -U 'probity'",
        "pip install probity-serve",
        "pip install 'probity-serve[offline]'",
    ],
)
def test_the_search_finds_what_is_not_published(text: str) -> None:
    assert REQUIRED.search(text)


@pytest.mark.parametrize(
    "text", ["pip install '.[offline]'", "version('probity-serve')", "pip install ./probity/x", "probity serve digits"]
)
def test_the_search_lets_ours_pass(text: str) -> None:
    assert not REQUIRED.search(text)


def test_no_text_asks_for_a_package_that_is_not_published() -> None:
    found = {
        str(path.relative_to(ROOT)): match[0]
        for path in tracked_texts()
        if (match := REQUIRED.search(path.read_text()))
    }
    assert found == {}


def test_no_requirement_is_the_other_package() -> None:
    assert PROJECT["name"] == NAME
    extras, groups = PROJECT["optional-dependencies"].values(), PYPROJECT["dependency-groups"].values()
    lines = [line for part in (PROJECT["dependencies"], *extras, *groups) for line in part if isinstance(line, str)]
    assert "probity" not in {Requirement(line).name for line in lines}


def test_the_installed_distribution_has_our_name_and_brings_the_command() -> None:
    distribution = importlib.metadata.distribution(NAME)
    assert distribution.metadata["Name"] == NAME
    assert "probity" not in {Requirement(line).name for line in distribution.requires or ()}
    assert [point.name for point in distribution.entry_points] == ["probity"]
