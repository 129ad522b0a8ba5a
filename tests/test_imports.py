"""Each package imports its own modules relatively, so that what follows imports by path finds the real folders; what
another package holds, by its full name.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.server import ROOT

PACKAGES = {"service": "demur.service", "offline": "demur.offline", "demur": "demur"}
OTHERS = "demur.service", "demur.offline"  # below `demur` by their names, but packages of their own
TEMPLATES = ROOT / "demur" / "templates"  # recipes, as users write them


def modules(folder: str) -> list[Path]:
    """Links to other packages are not followed."""
    return [file for file in sorted((ROOT / folder).rglob("*.py")) if TEMPLATES not in file.parents]


def named(file: Path) -> Iterator[tuple[int, int, str]]:
    """Line, level (0: absolute) and module of each import."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom):
            yield node.lineno, node.level, node.module or ""
        elif isinstance(node, ast.Import):
            yield from ((node.lineno, 0, alias.name) for alias in node.names)


def within(module: str, package: str) -> bool:
    return f"{module}.".startswith(f"{package}.")


@pytest.mark.parametrize("folder", PACKAGES)
def test_a_package_imports_its_own_modules_relatively_and_others_by_name(folder: str) -> None:
    package = PACKAGES[folder]
    elsewhere = [name for name in OTHERS if name != package]
    found = []
    for file in modules(folder):
        depth = len(file.relative_to(ROOT / folder).parts)
        for line, level, module in named(file):
            own = within(module, package) and not any(within(module, name) for name in elsewhere)
            leaves = level > depth or (level == depth and module.partition(".")[0] in PACKAGES and folder == "demur")
            if leaves if level else own:
                found.append(f"{file.relative_to(ROOT)}:{line}: {'.' * level}{module}")
    assert found == []
