"""The pages for people, and the blocks of code in them."""

import re
from pathlib import Path

from tests.support.server import ROOT

README = ROOT / "README.md"
PAGES = [
    README,
    *sorted((ROOT / "docs").glob("*.md")),
    *(ROOT / f"{name}.md" for name in ("ARCHITECTURE", "CONTRIBUTING", "SECURITY")),
]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def blocks(page: Path) -> list[tuple[str, str]]:
    """Language and content of every block of code, in order."""
    return [(match[1], match[2]) for match in BLOCK.finditer(page.read_text())]


def blocks_in(language: str) -> list[str]:
    """Every block of one language, in the order of the pages."""
    return [content for page in PAGES for found, content in blocks(page) if found == language]


def commands() -> list[str]:
    """Every line of the console blocks."""
    return [line for block in blocks_in("console") for line in block.splitlines()]


def prose(page: Path) -> str:
    """The page without its blocks of code."""
    return BLOCK.sub("", page.read_text())
