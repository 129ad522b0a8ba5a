"""A release as its workflow makes it: every shell step is run, with programs that would reach beyond this machine
replaced by ones that note how they were called. Each job has a folder of its own, and of the others only artifacts.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.server import ROOT

TEXT = (ROOT / ".github/workflows/release.yml").read_text()
WORKFLOW: dict[Any, Any] = yaml.safe_load(TEXT)
JOBS: dict[str, Any] = WORKFLOW["jobs"]
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
TAG = f"v{VERSION}"
FILES = f"dist/demur-{VERSION}-py3-none-any.whl dist/demur-{VERSION}.tar.gz"
DIGEST = f"sha256:{'d' * 64}"
IMAGE = f"ghcr.io/acme/demur@{DIGEST}"
GITHUB = {
    "github.server_url": "https://github.com",
    "github.repository": "Acme/Product",
    "github.ref_name": TAG,
    "secrets.GITHUB_TOKEN": "a-token",
}
STUBS = {
    "make": f'[ "$1" != dist ] || {{ mkdir dist; touch {FILES}; echo "$LINKS" > links; }}',
    "sudo": "",
    "git": "echo 2027-01-31T00:00:00Z",
    "uv": "",
    "gh": "",
    "docker": f"""case "$*" in
        "buildx imagetools inspect docker.io"*) echo {DIGEST} ;;
        *amd64*SPDX*|*arm64*SPDX*) echo '{{"spdxVersion": "SPDX-2.3"}}' ;;
        *--metadata-file*) echo '{{"containerimage.digest": "{DIGEST}"}}' > metadata.json ;;
    esac""",
    "python": f'[ "$2" = pip ] || exec {sys.executable} "$@"',
}
CHECKED_OUT = ".ci", "pyproject.toml", "CHANGELOG.md", "deploy"
needs_jq = pytest.mark.skipif(shutil.which("jq") is None, reason="found no jq, which the hosted runners have")


def needs(name: str) -> list[str]:
    needed = JOBS[name].get("needs", [])
    return [needed] if isinstance(needed, str) else needed


def in_order() -> Iterator[str]:
    """Every job, those that it needs before it."""
    done: list[str] = []
    while len(done) < len(JOBS):
        name = next(one for one in JOBS if one not in done and set(needs(one)) <= set(done))
        done.append(name)
        yield name


class Release:
    """Runs the jobs; `calls` are those of the replaced programs, by job; `artifacts` the folders that were left."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.values = folder, dict(GITHUB)
        self.calls: dict[str, str] = {}
        self.artifacts: dict[str, Path] = {}
        self.programs = folder / "programs"
        self.programs.mkdir()
        for name, body in STUBS.items():
            program = self.programs / name
            program.write_text(f'#!/bin/bash\necho {name} "$@" >> ../calls\n{body}\n')
            program.chmod(0o755)

    def run(self) -> None:
        for name in in_order():
            self._job(name)

    def work(self, name: str) -> Path:
        return self.folder / name / "work"

    def _job(self, name: str) -> None:
        self.work(name).mkdir(parents=True)
        (self.folder / name / "calls").touch()
        for step in JOBS[name]["steps"]:
            given = {key: self._value(str(text)) for key, text in step.get("with", {}).items()}
            action = step.get("uses", "").partition("@")[0]
            if "run" in step:
                self._step(name, step)
            elif action == "actions/checkout":
                self._check_out(self.work(name))
            elif action == "actions/upload-artifact":
                self._upload(self.work(name), given)
            elif action == "actions/download-artifact":
                together = "name" in given or given.get("merge-multiple") == "True"
                for artifact in [given["name"]] if "name" in given else sorted(self.artifacts):
                    to = self.work(name) if together else self.work(name) / artifact
                    shutil.copytree(self.artifacts[artifact], to, dirs_exist_ok=True)
            elif action == "actions/attest-build-provenance":
                subject = given.get("subject-path") or given["subject-digest"]
                assert [*self.work(name).glob(subject)] or subject == DIGEST
        self.calls[name] = (self.folder / name / "calls").read_text()

    def _check_out(self, work: Path) -> None:
        for part in CHECKED_OUT:
            copy = shutil.copytree if (ROOT / part).is_dir() else shutil.copy
            copy(ROOT / part, work / part)
        changelog = work / "CHANGELOG.md"
        changelog.write_text(changelog.read_text().replace("(unreleased)", "(2027-01-31)", 1))

    def _upload(self, work: Path, given: dict[str, str]) -> None:
        assert given["name"] not in self.artifacts
        folder = self.artifacts[given["name"]] = self.folder / "artifacts" / given["name"]
        for path in given["path"].split():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            copy = shutil.copytree if (work / path).is_dir() else shutil.copy
            copy(work / path, folder / path)

    def _value(self, text: str) -> str:
        return re.sub(r"\$\{\{ *(\S+) *\}\}", lambda found: self.values[found[1]], text)

    def _step(self, name: str, step: dict[str, Any]) -> None:
        output = self.folder / "output"
        output.write_text("")
        own = {**JOBS[name].get("env", {}), **step.get("env", {})}
        variables = {
            "PATH": f"{self.programs}:{os.environ['PATH']}",
            "GITHUB_REF_NAME": TAG,
            "GITHUB_REPOSITORY": GITHUB["github.repository"],
            "GITHUB_REPOSITORY_OWNER": "Acme",
            "GITHUB_SERVER_URL": GITHUB["github.server_url"],
            "GITHUB_SHA": "c" * 40,
            "GITHUB_ACTOR": "somebody",
            "GITHUB_OUTPUT": str(output),
            **{key: self._value(text) for key, text in own.items()},
        }
        command = ["bash", "--noprofile", "--norc", "-euo", "pipefail", "-c", step["run"]]
        done = subprocess.run(
            command, cwd=self.work(name), env=variables, capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, done.stderr
        for line in output.read_text().splitlines():
            key, _, value = line.partition("=")
            self.values[f"steps.{step['id']}.outputs.{key}"] = value


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Release:
    made = Release(tmp_path_factory.mktemp("release"))
    made.run()
    return made


@needs_jq
def test_what_was_built_once_and_tried_is_what_is_published(release: Release) -> None:
    assert "".join(release.calls.values()).count("make dist") == 1
    for file in FILES.split():
        assert f"make smoke PYTHON=python DIST={file}\n" in release.calls["smoke"]
    published = f"uv publish --trusted-publishing always --check-url https://pypi.org/simple/ {FILES}\n"
    assert published in release.calls["index"]
    assert "--require-hashes -r uv.txt" in release.calls["index"]
    assert (release.work("index") / "uv.txt").read_text().startswith("uv==")
    assert f"--notes-file page.md {FILES} sbom-amd64.spdx.json sbom-arm64.spdx.json\n" in release.calls["page"]


@needs_jq
def test_the_image_is_named_by_digest_and_has_its_tag_last(release: Release) -> None:
    calls = release.calls["image"]
    assert f"BASE=docker.io/library/python:3.11-slim@{DIGEST} " in calls
    assert "--platform linux/amd64,linux/arm64 " in calls
    assert "--output type=image,name=ghcr.io/acme/demur,push-by-digest=true,push=true " in calls
    assert f":{VERSION}" not in calls
    assert f"imagetools create --tag ghcr.io/acme/demur:{VERSION} {IMAGE}\n" in release.calls["page"]
    for kind in ("amd64", "arm64"):
        assert "spdxVersion" in json.loads((release.work("page") / f"sbom-{kind}.spdx.json").read_text())


@needs_jq
def test_the_page_has_the_notes_and_links_that_lead_somewhere(release: Release) -> None:
    links = f"https://github.com/Acme/Product/blob/{TAG}"
    page = (release.work("page") / "page.md").read_text()
    own = subprocess.run(
        [sys.executable, ".ci/notes.py", TAG], cwd=release.work("distributions"), capture_output=True, text=True
    )
    assert own.returncode == 0
    assert page.splitlines()[0] == own.stdout.splitlines()[0]
    assert page.endswith(f"Image: `{IMAGE}`\n")
    assert f"]({links}/" in page
    assert not re.search(r"\]\((?!https?:|#)", page)
    assert (release.work("distributions") / "links").read_text() == f"{links}\n"


def test_each_job_may_do_what_it_must_and_no_more() -> None:
    assert WORKFLOW[True] == {"push": {"tags": ["v*"]}}  # YAML's `on`
    assert WORKFLOW["defaults"] == {"run": {"shell": "bash"}}
    assert WORKFLOW["permissions"] == {"contents": "read"}
    signs = {"contents": "read", "id-token": "write", "attestations": "write"}
    assert {name: job.get("permissions") for name, job in JOBS.items()} == {
        "distributions": signs,
        "smoke": None,
        "image": signs | {"packages": "write"},
        "index": {"contents": "read", "id-token": "write"},
        "page": {"contents": "write", "packages": "write"},
    }
    assert {name: set(needs(name)) for name in JOBS} == {
        "distributions": set(),
        "smoke": {"distributions"},
        "image": {"distributions"},
        "index": {"smoke", "image"},
        "page": {"index"},
    }
    assert JOBS["index"]["environment"] == "pypi"
    assert set(re.findall(r"secrets\.(\w+)", TEXT)) == {"GITHUB_TOKEN"}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("[a](docs/b.md#c)", "[a](L/docs/b.md#c)"),
        ("![a](b/c.png)", "![a](L/b/c.png?raw=true)"),
        ("[a](https://b) [c](#d)", "[a](https://b) [c](#d)"),
    ],
)
def test_links_are_made_absolute(tmp_path: Path, text: str, found: str) -> None:
    page = tmp_path / "page.md"
    page.write_text(text)
    subprocess.run([sys.executable, str(ROOT / ".ci/links.py"), "L", str(page)], check=True, timeout=60)
    assert page.read_text() == found


def notes(folder: Path, tag: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, str(ROOT / ".ci/notes.py"), tag, str(folder)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


CHANGELOG = (
    "# Changelog\n\n## 0.2.0 ({date})\n\n{text}\n\n## Older\n\n* Unnumbered.\n\n## 0.1.0 (2027-01-01)\n\n* Old.\n"
)


@pytest.mark.parametrize(
    ("version", "tag", "date", "text", "message"),
    [
        ("0.2.0", "v0.2.0", "2027-01-31", "* New.", ""),
        ("0.2.0", "v0.2.0", "unreleased", "* New.", "found '## 0.2.0 (unreleased)', expected one section"),
        ("0.2.0", "v0.2.0", "2027-99-99", "* New.", "expected one section '## 0.2.0 (YYYY-MM-DD)'"),
        ("0.2.0", "v0.2.0", "2027-01-31", "", "found nothing below"),
        ("0.2.0", "0.2.0", "2027-01-31", "* New.", "found 0.2.0, expected v0.2.0"),
        ("0.3.0", "v0.2.0", "2027-01-31", "* New.", "expected v0.3.0"),
        ("0.3.0", "v0.3.0", "2027-01-31", "* New.", "found 0 sections of 0.3.0"),
        ("0.2.0", "v0.2.0", "2027-01-31", "## 0.2.0 (2027-01-31)\n\n* New.", "found 2 sections of 0.2.0"),
    ],
)
def test_the_notes_are_those_of_the_tag_or_none(
    tmp_path: Path, version: str, tag: str, date: str, text: str, message: str
) -> None:
    (tmp_path / "pyproject.toml").write_text(f'[project]\nversion = "{version}"\n')
    (tmp_path / "CHANGELOG.md").write_text(CHANGELOG.format(date=date, text=text))
    done = notes(tmp_path, tag)
    assert (done.returncode == 0) == (not message)
    assert done.stdout == ("" if message else "* New.\n")
    assert message in done.stderr


def test_one_version_stands_everywhere() -> None:
    for file, pattern in {
        "service/app.py": r'^VERSION = "(.+)"$',
        "Dockerfile": r"(?:demur(?:-offline)?:|image\.version=\")(\d[\d.]*\d)",
        "deploy/kubernetes/demur.yaml": r"image: demur:(\S+)",
        "deploy/kserve/runtime.yaml": r"image: demur:(\S+)",
        "docs/deploying.md": r"--tag demur(?:-offline)?:(\S+)",
    }.items():
        found = set(re.findall(pattern, (ROOT / file).read_text(), re.MULTILINE))
        assert found == {VERSION}, file
