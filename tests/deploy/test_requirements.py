"""The locks that the images are installed from: current, as tested, and with the hash of every file."""

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from tests.support.server import ROOT

LOCKS = ROOT / "deploy/requirements"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
BASE, EXTRAS = PROJECT["dependencies"], PROJECT["optional-dependencies"]
BUILD = [line for line in (LOCKS / "build.in").read_text().splitlines() if not line.startswith("#")]
REMEDY = "run `make lock`"


def pinned(path: Path) -> dict[str, Version]:
    pins = re.findall(r"^([\w.-]+)==([\w.+!-]+)", path.read_text(), re.MULTILINE)
    return {canonicalize_name(name): Version(version) for name, version in pins}


@pytest.mark.parametrize(
    ("lock", "lines"),
    [
        ("service", BASE),
        ("texts", EXTRAS["text"]),
        ("offline", [*BASE, *EXTRAS["offline"]]),
        ("build", BUILD),
    ],
    ids=lambda x: str(x)[:8],
)
def test_a_lock_has_what_is_declared(lock: str, lines: list[str]) -> None:
    pins = pinned(LOCKS / f"{lock}.txt")
    for requirement in map(Requirement, lines):
        found = pins.get(canonicalize_name(requirement.name))
        assert found is not None, f"{lock}.txt lacks {requirement.name}: {REMEDY}"
        assert requirement.specifier.contains(found, prereleases=True), f"{requirement}, found {found}: {REMEDY}"


@pytest.mark.parametrize("lock", ["service", "texts", "offline", "build"])
def test_a_lock_has_the_versions_that_were_tested(lock: str) -> None:
    tested = pinned(ROOT / "constraints.txt")
    pins = {name: Version(version.public) for name, version in pinned(LOCKS / f"{lock}.txt").items()}
    assert {name: version for name, version in pins.items() if tested.get(name, version) != version} == {}, REMEDY


@pytest.mark.parametrize("lock", ["service", "texts", "offline", "build"])
def test_every_package_of_a_lock_has_a_hash(lock: str) -> None:
    text = re.sub(r"^#.*\n", "", (LOCKS / f"{lock}.txt").read_text(), flags=re.MULTILINE)
    for entry in text.replace("\\\n", " ").splitlines():
        assert re.search(r"--hash=sha256:[0-9a-f]{64}", entry), entry


def test_the_service_is_locked_without_torch() -> None:
    assert not {"torch", "onnx", "scikit-learn", "httpx"} & pinned(LOCKS / "service.txt").keys()


def test_torch_is_the_build_without_cuda() -> None:
    pins = pinned(LOCKS / "offline.txt")
    assert pins["torch"].local == "cpu"
    assert not [name for name in pins if name.startswith(("nvidia", "cuda", "triton"))]


@pytest.mark.parametrize("workflow", ["ci.yml", "release.yml"])
def test_actions_are_named_by_commit(workflow: str) -> None:
    used = re.findall(r"uses: (.*)", (ROOT / ".github/workflows" / workflow).read_text())
    assert used
    for action in used:
        assert re.fullmatch(r"[\w/-]+@[0-9a-f]{40}  # v\d+\.\d+\.\d+", action), action
