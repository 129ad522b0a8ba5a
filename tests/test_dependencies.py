"""Every library that is imported is declared where it is used: nothing comes by chance, with another library."""

import ast
import importlib.metadata
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.support.server import ROOT

PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
BASE = PYPROJECT["project"]["dependencies"]
EXTRAS = PYPROJECT["project"]["optional-dependencies"]
GROUPS = {  # without the groups that a group includes
    name: [line for line in lines if isinstance(line, str)] for name, lines in PYPROJECT["dependency-groups"].items()
}
ALL_GROUPS = [line for lines in GROUPS.values() for line in lines]
USED = "offline", "client", "score", "grpc", "remote", "traces", "mlflow"  # by tests
OURS = {"demur", "benchmarks", "paper", "docs", "tests", "examples"}
# `demur` of the base install imports these of the offline job; the rest only where torch is.
BASE_MODULES = [
    "offline/__init__.py",
    *(f"demur/{name}.py" for name in ("__init__", "__main__", "cli", "card", "evaluation_table")),
]
DISTRIBUTIONS = importlib.metadata.packages_distributions()


def imported(files: list[Path]) -> set[str]:
    """Top-level packages that these modules import, at their top or within a function."""
    found: set[str] = set()
    for file in files:
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Import):
                found |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                found.add(str(node.module).partition(".")[0])
    return found - set(sys.stdlib_module_names) - OURS


def requirements() -> list[Requirement]:
    """Of the base install, of every extra and of every group."""
    return [Requirement(line) for lines in (BASE, *EXTRAS.values(), *GROUPS.values()) for line in lines]


def undeclared(files: list[Path], lines: list[str]) -> dict[str, list[str]]:
    names = {canonicalize_name(Requirement(line).name) for line in lines}
    return {
        package: DISTRIBUTIONS.get(package, [])
        for package in imported(files)
        if not names & {canonicalize_name(name) for name in DISTRIBUTIONS.get(package, [])}
    }


def modules(folder: str) -> list[Path]:
    return sorted((ROOT / folder).rglob("*.py"))


def test_the_service_imports_what_the_base_install_declares() -> None:
    declared = [*BASE, *EXTRAS["frames"], *EXTRAS["text"], *EXTRAS["grpc"], *EXTRAS["remote"], *EXTRAS["traces"]]
    assert undeclared([file for file in modules("service") if "client" not in file.parts], declared) == {}


def test_the_command_line_imports_what_the_base_install_declares() -> None:
    assert undeclared([ROOT / name for name in BASE_MODULES], [*BASE, "torch"]) == {}


def test_the_flavour_of_mlflow_imports_what_is_declared_for_it() -> None:
    assert undeclared([ROOT / "demur/mlflow.py"], [*BASE, *EXTRAS["mlflow"]]) == {}


@pytest.mark.parametrize(
    ("folder", "declared"),
    [
        ("service/client", EXTRAS["client"]),
        ("offline", EXTRAS["offline"]),
        ("demur/scoring", EXTRAS["score"]),
        ("tests", [line for name in USED for line in EXTRAS[name]] + ALL_GROUPS),
    ],
)
def test_a_part_imports_what_is_declared_for_it(folder: str, declared: list[str]) -> None:
    assert undeclared(modules(folder), [*BASE, *declared]) == {}


def test_every_requirement_has_a_lowest_version() -> None:
    without = [
        requirement
        for requirement in requirements()
        if not any(part.operator in (">=", "==") for part in requirement.specifier)
    ]
    assert without == []


def test_the_tested_versions_are_allowed() -> None:
    """constraints.txt says what was tested; pyproject.toml what is allowed."""
    pinned = {
        canonicalize_name(name): version
        for name, _, version in (
            line.partition("==") for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line
        )
    }
    for requirement in requirements():
        assert pinned[canonicalize_name(requirement.name)] in requirement.specifier, requirement
