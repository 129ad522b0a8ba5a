"""The pages for people, and the blocks of code in them."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from markdown_it import MarkdownIt
from markdown_it.token import Token

from tests.support.server import ROOT

BIN = Path(sys.executable).parent

README = ROOT / "README.md"
PAGES = [
    README,
    *sorted((ROOT / "docs").glob("*.md")),
    *(ROOT / f"{name}.md" for name in ("ARCHITECTURE", "CONTRIBUTING", "SECURITY")),
]
TRACKED = subprocess.run(
    ["git", "ls-files", "-z", "*.md"], cwd=ROOT, capture_output=True, text=True, check=False
).stdout
ALL_PAGES = sorted({*PAGES, *(ROOT / name for name in TRACKED.split("\0") if (ROOT / name).is_file())})
GUIDES = [ROOT / "docs/tutorial.md", ROOT / "docs/howto.md"]  # run from top to bottom, by tests/docs/test_guides.py


def code_of(text: str) -> list[Token]:
    """Every block of code in Markdown, however it is marked: by a fence, also in a list, or by spaces before it."""
    return [token for token in MarkdownIt("commonmark").parse(text) if token.type in ("fence", "code_block")]


def blocks(page: Path) -> list[tuple[str, str]]:
    """Language, or nothing, and content of every block of code, in order."""
    return [(token.info.strip(), token.content) for token in code_of(page.read_text())]


def blocks_in(language: str) -> list[str]:
    """Every block of one language, in the order of the pages, without those of the guides."""
    pages = (page for page in dict.fromkeys([*PAGES, *ALL_PAGES]) if page not in GUIDES)
    return [content for page in pages for found, content in blocks(page) if found == language]


def commands() -> list[str]:
    """Every line of the console blocks."""
    return [line for block in blocks_in("console") for line in block.splitlines()]


def prose(page: Path) -> str:
    """The page without its blocks of code."""
    lines = page.read_text().splitlines(keepends=True)
    for token in reversed(code_of("".join(lines))):
        assert token.map is not None
        del lines[slice(*token.map)]
    return "".join(lines)


def environment() -> dict[str, str]:
    """`ORT_DISABLE_TELEMETRY` for the blocks that use onnxruntime alone."""
    path = f"{BIN}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT), "ORT_DISABLE_TELEMETRY": "1"}


def run(command: list[str], cwd: Path) -> str:
    done = subprocess.run(command, cwd=cwd, env=environment(), capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def run_line(line: str, cwd: Path) -> str:
    return run(["bash", "-c", line], cwd)


def compare(received: Any, expected: Any, where: str) -> None:
    """The same keys, words and flags; numbers alike, as training differs in the last digits between machines."""
    if isinstance(expected, dict):
        assert received.keys() == expected.keys(), where
        for key, value in expected.items():
            if key not in ("id", "timing", "digest"):
                compare(received[key], value, f"{where}.{key}")
    elif isinstance(expected, list):
        assert len(received) == len(expected), where
        for i, value in enumerate(expected):
            compare(received[i], value, f"{where}[{i}]")
    elif isinstance(expected, float):
        assert received == pytest.approx(expected, rel=0.1, abs=0.01), where
    elif isinstance(expected, str):
        number = r"\d[\d,]*(\.\d+)?"
        assert re.sub(number, "", received) == re.sub(number, "", expected), where
    else:
        assert received == expected, where
