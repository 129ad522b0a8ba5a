"""A release as its workflow makes it: every shell step is run, with programs that would reach beyond this machine
replaced by ones that note how they were called.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.server import ROOT

WORKFLOW: dict[str, Any] = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text())
JOBS: dict[str, Any] = WORKFLOW["jobs"]
DIGEST = f"sha256:{'d' * 64}"
GITHUB = {"github.repository": "Acme/Demur", "secrets.GITHUB_TOKEN": "a-token"}
STUBS = {
    "make": '[ "$1" != dist ] || { mkdir dist; touch dist/demur-0.1.0.tar.gz dist/demur-0.1.0-py3-none-any.whl; }',
    "sudo": "",
    "git": "echo 2027-01-31T00:00:00Z",
    "uv": "",
    "gh": "",
    "docker": f"""case "$*" in
        "buildx imagetools inspect docker.io"*) echo {DIGEST} ;;
        *SBOM*) echo '{{"linux/amd64": {{}}}}' ;;
        *--metadata-file*) echo '{{"containerimage.digest": "{DIGEST}"}}' > metadata.json ;;
    esac""",
    "python": f'[ "$2" = pip ] || exec {sys.executable} "$@"',
}


class Run:
    """A folder in which the jobs run, one after the other; `calls` are those of the replaced programs."""

    def __init__(self, folder: Path, tag: str) -> None:
        self.folder, self.tag, self.outputs = folder, tag, dict(GITHUB)
        self.programs = folder / "programs"
        self.work = folder / "work"
        self.programs.mkdir()
        shutil.copytree(ROOT / ".ci", self.work / ".ci")
        for name in ("pyproject.toml", "CHANGELOG.md"):
            shutil.copy(ROOT / name, self.work)
        for name, body in STUBS.items():
            program = self.programs / name
            program.write_text(f'#!/bin/bash\necho {name} "$@" >> {folder}/calls\n{body}\n')
            program.chmod(0o755)

    def date(self) -> None:
        changelog = self.work / "CHANGELOG.md"
        changelog.write_text(changelog.read_text().replace("(unreleased)", "(2027-01-31)", 1))

    def value(self, text: str) -> str:
        return re.sub(r"\$\{\{ *(\S+) *\}\}", lambda found: self.outputs[found[1]], text)

    def job(self, name: str) -> None:
        assert all(needed in JOBS for needed in _needs(name))
        for step in JOBS[name]["steps"]:
            if "run" in step:
                self._step(step, JOBS[name].get("env", {}))
            for entry in step.get("with", {}).values():
                self.value(str(entry))  # what it names is known

    def _step(self, step: dict[str, Any], env: dict[str, str]) -> None:
        output = self.folder / "output"
        output.write_text("")
        variables = {
            "PATH": f"{self.programs}:{os.environ['PATH']}",
            "GITHUB_REF_NAME": self.tag,
            "GITHUB_REPOSITORY": GITHUB["github.repository"],
            "GITHUB_SERVER_URL": "https://github.com",
            "GITHUB_SHA": "c" * 40,
            "GITHUB_ACTOR": "somebody",
            "GITHUB_OUTPUT": str(output),
            **{name: self.value(text) for name, text in {**env, **step.get("env", {})}.items()},
        }
        command = ["bash", "--noprofile", "--norc", "-euo", "pipefail", "-c", step["run"]]
        done = subprocess.run(command, cwd=self.work, env=variables, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        for line in output.read_text().splitlines():
            key, _, value = line.partition("=")
            self.outputs[f"steps.{step['id']}.outputs.{key}"] = value

    @property
    def calls(self) -> str:
        return (self.folder / "calls").read_text()


def _needs(name: str) -> list[str]:
    needed = JOBS[name].get("needs", [])
    return [needed] if isinstance(needed, str) else needed


def _using(name: str, action: str) -> list[dict[str, Any]]:
    return [step["with"] for step in JOBS[name]["steps"] if step.get("uses", "").startswith(action)]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path, "v0.1.0")


@pytest.mark.skipif(shutil.which("jq") is None, reason="found no jq, which the hosted runners have")
def test_every_step_runs_and_what_was_tried_is_what_is_published(run: Run) -> None:
    run.date()
    for name in JOBS:
        run.job(name)
    image = f"ghcr.io/acme/demur@{DIGEST}"
    files = "dist/demur-0.1.0-py3-none-any.whl dist/demur-0.1.0.tar.gz"
    for file in files.split():
        assert f"make smoke PYTHON=python DIST={file}\n" in run.calls
    assert f"uv publish --trusted-publishing always {files}\n" in run.calls
    assert f"--notes-file page.md {files} sbom.spdx.json\n" in run.calls
    assert f"BASE=docker.io/library/python:3.11-slim@{DIGEST} " in run.calls
    assert f"buildx imagetools inspect {image} --format" in run.calls
    page = (run.work / "page.md").read_text()
    assert page.startswith("### Added")
    assert page.endswith(f"Image: `{image}`\n")


@pytest.mark.skipif(shutil.which("jq") is None, reason="found no jq, which the hosted runners have")
def test_what_a_job_fetches_another_has_left(run: Run) -> None:
    run.date()
    left = {}
    for name in JOBS:
        run.job(name)
        for upload in _using(name, "actions/upload-artifact"):
            paths = upload["path"].split()
            assert all((run.work / path).exists() for path in paths)
            left[upload["name"]] = name
    for name in JOBS:
        for download in _using(name, "actions/download-artifact"):
            if "name" in download:
                assert left[download["name"]] in _needs(name)
    assert left == {"distributions": "distributions", "image": "image"}


def test_the_index_comes_after_everything_that_may_fail_and_knows_no_secret() -> None:
    assert set(_needs("index")) == {"distributions", "image"}
    assert JOBS["index"]["permissions"]["id-token"] == "write"
    secrets = set(re.findall(r"secrets\.(\w+)", (ROOT / ".github/workflows/release.yml").read_text()))
    assert secrets == {"GITHUB_TOKEN"}


def notes(folder: Path, tag: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, str(ROOT / ".ci/notes.py"), tag, str(folder)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


CHANGELOG = "# Changelog\n\n## 0.2.0 ({date})\n\n* New.\n\n## 0.1.0 (2027-01-01)\n\n* Old.\n"


@pytest.mark.parametrize(
    ("version", "tag", "date", "message"),
    [
        ("0.2.0", "v0.2.0", "2027-01-31", ""),
        ("0.2.0", "v0.2.0", "unreleased", "expected the date of the release"),
        ("0.2.0", "0.2.0", "2027-01-31", "found 0.2.0, expected v0.2.0"),
        ("0.3.0", "v0.2.0", "2027-01-31", "expected v0.3.0"),
        ("0.3.0", "v0.3.0", "2027-01-31", "found no section of 0.3.0"),
    ],
)
def test_the_notes_are_those_of_the_tag_or_none(
    tmp_path: Path, version: str, tag: str, date: str, message: str
) -> None:
    (tmp_path / "pyproject.toml").write_text(f'[project]\nversion = "{version}"\n')
    (tmp_path / "CHANGELOG.md").write_text(CHANGELOG.format(date=date))
    done = notes(tmp_path, tag)
    assert (done.returncode == 0) == (not message)
    assert done.stdout == ("" if message else "* New.\n")
    assert message in done.stderr


def test_one_version_stands_everywhere() -> None:
    version = re.search(r'^version = "(.+)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert version
    for file, pattern in {
        "service/app.py": r'^VERSION = "(.+)"$',
        "Dockerfile": r"(?:demur(?:-offline)?:|image\.version=\")(\d[\d.]*\d)",
        "deploy/kubernetes/demur.yaml": r"image: demur:(\S+)",
        "deploy/kserve/runtime.yaml": r"image: demur:(\S+)",
        "docs/deploying.md": r"--tag demur(?:-offline)?:(\S+)",
    }.items():
        found = set(re.findall(pattern, (ROOT / file).read_text(), re.MULTILINE))
        assert found == {version[1]}, file
