"""What is in the repository: only what somebody wrote, nothing that a tool left."""

import subprocess

import pytest

from tests.support.server import ROOT

HIDDEN = {".ci", ".dockerignore", ".gitattributes", ".github", ".gitignore", ".pre-commit-config.yaml"}


def tracked(*options: str) -> list[str]:
    listed = subprocess.run(["git", "ls-files", "-z", *options], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode != 0:
        pytest.skip("not a git checkout")
    return [name for name in listed.stdout.split("\0") if name]


def test_no_file_is_tracked_that_is_ignored() -> None:
    assert tracked("--cached", "--ignored", "--exclude-standard") == []


def test_no_folder_of_a_tool_is_tracked() -> None:
    assert {name.split("/")[0] for name in tracked() if name.startswith(".")} <= HIDDEN
