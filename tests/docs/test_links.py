"""Pages name only what exists: files, sections of pages, settings and targets of make."""

import re
from pathlib import Path

import pytest

from benchmarks.registry import PROGRAM
from demur.service.settings import PREFIX, Settings
from tests.support.pages import ALL_PAGES, PAGES, prose
from tests.support.server import ROOT

LINK = re.compile(r"\]\((?!https?://)([^)]+)\)")
FOLDERS = "benchmarks|deploy|docs|examples|offline|paper|demur|service|tests"
CODE_PATH = re.compile(rf"`((?:{FOLDERS})/[\w./-]*)`")
OF_OTHERS = {"BUNDLE_DIR", "API_KEY", "DATA_DIR", "DATA_CACHE"}  # docker-compose.yml, the client, the benchmarks


def anchors(page: Path) -> set[str]:
    """The names of a page's sections, as GitHub makes them."""
    headings = re.findall(r"^#+ +(.*)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", ALL_PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    for link in LINK.findall(prose(page)):
        file, _, anchor = link.partition("#")
        target = page.parent / file if file else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_paths_exist(page: Path) -> None:
    for path in CODE_PATH.findall(prose(page)):
        assert (ROOT / path).exists(), path


def test_every_page_is_reached_from_the_readme() -> None:
    reached, waiting = set[Path](), [ROOT / "README.md"]
    while waiting:
        page = waiting.pop().resolve()
        if page in reached or page.suffix != ".md":
            continue
        reached.add(page)
        waiting += [page.parent / link.partition("#")[0] for link in LINK.findall(prose(page)) if link[0] != "#"]
    assert set(PAGES) <= reached


def test_variables_are_settings() -> None:
    named = {name for page in PAGES for name in re.findall(rf"{PREFIX}([A-Z_]*[A-Z])\b", page.read_text())}
    assert named == {name.upper() for name in Settings.model_fields} | OF_OTHERS


def test_targets_of_make_exist() -> None:
    targets = set(re.findall(r"^([a-z][\w-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = {name for page in PAGES for name in re.findall(r"`make ([\w-]+)", page.read_text())}
    assert named <= targets, named - targets


def test_benchmarks_exist() -> None:
    page = (ROOT / "docs" / "benchmarks.md").read_text()
    named = re.findall(r"\| `(\w+)` \|$", page, re.MULTILINE) + re.findall(r"^`(\w+)`: ", page, re.MULTILINE)
    named += re.findall(r"python -m benchmarks (\w+)`", page)
    assert len(named) > 10
    assert all(PROGRAM.select(name) for name in named if name != "NAME")
