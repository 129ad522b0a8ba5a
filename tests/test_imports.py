"""Each package imports its own modules relatively, so that what follows imports by path finds the real folders; what
another package holds, by its full name.
"""

import ast
from collections.abc import Iterator

import pytest

from tests.support.server import ROOT

PACKAGES = {"service": "demur.service", "offline": "demur.offline", "demur": "demur"}
TEMPLATES = ROOT / "demur" / "templates"  # recipes, as users write them


def package_of(module: str) -> str | None:
    """Which of the three a module belongs to by its full name; "demur" for the facade alone."""
    parts = module.split(".")
    if parts[0] != "demur":
        return parts[0] if parts[0] in PACKAGES else None  # found from the root of a checkout, and only there
    return ".".join(parts[:2]) if ".".join(parts[:2]) in PACKAGES.values() else "demur"


def named(text: str, own: list[str]) -> Iterator[tuple[int, bool, str]]:
    """Line, whether it is relative, and the full name of each thing that a module in the package `own` imports."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, False, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = own[: len(own) - node.level + 1] if node.level else []
            module = [*base, *(node.module or "").split(".")] if node.module else base
            yield from ((node.lineno, node.level > 0, ".".join([*module, alias.name])) for alias in node.names)


def wrong(text: str, package: str, own: list[str]) -> list[str]:
    """Imports that are absolute within the package, relative across packages, or of a bare `service` or `offline`."""
    found = [(line, relative, name, package_of(name)) for line, relative, name in named(text, own)]
    return [
        f"{line}: {name}"
        for line, relative, name, of in found
        if of is not None and (of != package if relative else of == package or of in PACKAGES.keys() - {"demur"})
    ]


@pytest.mark.parametrize("folder", PACKAGES)
def test_a_package_imports_its_own_modules_relatively_and_others_by_name(folder: str) -> None:
    found = {}
    for file in sorted((ROOT / folder).rglob("*.py")):
        inside = file.relative_to(ROOT / folder)
        if TEMPLATES not in file.parents:
            found[str(inside)] = wrong(
                file.read_text(), PACKAGES[folder], [*PACKAGES[folder].split("."), *inside.parts[:-1]]
            )
    assert {name: lines for name, lines in found.items() if lines} == {}
    assert len(found) > 20


@pytest.mark.parametrize(
    ("text", "package"),
    [
        ("import demur.service.app", "demur.service.http"),
        ("from demur.service.app import x", "demur.service.http"),
        ("from demur import service", "demur.service.http"),
        ("from service.app import x", "demur.service.http"),
        ("from ...offline import x", "demur.service.http"),
        ("from demur.card import x", "demur.scoring"),
        ("import demur", "demur.scoring"),
        ("from .. import offline", "demur.scoring"),
        ("from ..service.app import x", "demur.scoring"),
    ],
)
def test_what_is_wrong_is_found(text: str, package: str) -> None:
    assert wrong(text, str(package_of(package)), package.split("."))


@pytest.mark.parametrize(
    ("text", "package"),
    [
        ("from ..app import x", "demur.service.http"),
        ("from . import x", "demur.service.http"),
        ("from demur.service.app import x", "demur.offline.fit"),
        ("from ..card import x", "demur.scoring"),
        ("from demur.service import x", "demur.scoring"),
        ("import numpy", "demur.scoring"),
    ],
)
def test_what_is_right_passes(text: str, package: str) -> None:
    assert not wrong(text, str(package_of(package)), package.split("."))
