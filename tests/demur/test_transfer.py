"""`demur pull`, `demur push`, and commands that take the URI of a bundle."""

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from demur.cli import app
from demur.service.bundle import read_bundle
from tests.support.fake_hub import FakeHub, fake_hub
from tests.support.server import ROOT, environment

BUNDLE = ROOT / "tests" / "golden" / "v1" / "bundle"
URI = "hf://acme/digits"


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    monkeypatch.setenv("DEMUR_CACHE_DIR", str(tmp_path / "cache"))
    with fake_hub() as running:
        monkeypatch.setenv("HF_ENDPOINT", running.url)
        monkeypatch.setenv("HF_TOKEN", "hf_secret")
        yield running


def demur(*arguments: object) -> Result:
    return CliRunner().invoke(app, list(map(str, arguments)))


def test_a_bundle_goes_and_comes(hub: FakeHub, tmp_path: Path) -> None:
    pushed = demur("push", BUNDLE, URI)
    assert pushed.exit_code == 0, pushed.output
    exact = re.search(r"hf://acme/digits@[0-9a-f]{40}", pushed.output)
    assert exact is not None
    pulled = demur("pull", exact[0], "--out", tmp_path / "here")
    assert pulled.exit_code == 0, pulled.output
    assert "Fetched golden-digits version 1" in pulled.output
    assert read_bundle(tmp_path / "here").digest == read_bundle(BUNDLE).digest


def test_commands_take_a_uri_in_place_of_a_folder(hub: FakeHub, tmp_path: Path) -> None:
    assert demur("push", BUNDLE, URI).exit_code == 0
    shown = demur("inspect", URI)
    assert shown.exit_code == 0, shown.output
    assert read_bundle(BUNDLE).digest in shown.output
    missing = demur("inspect", f"{URI}-2")
    assert missing.exit_code == 2
    assert "error: hf://acme/digits-2: found no such repository" in " ".join(missing.output.split())


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["pull", URI, "--out", "there"], "found no such repository"),
        (
            ["pull", str(BUNDLE), "--out", str(BUNDLE)],
            "holds a bundle (remedy: remove it, or choose another destination; a command replaces it with --force",
        ),
        (["pull", "ftp://x/y", "--out", "there"], "found another form of URI"),
        (["pull", str(BUNDLE), "--out", "there", "--trusted-keys", "none.pem"], "none.pem: trusted keys"),
        (["push", "none", URI], "no such folder"),
        (["push", str(BUNDLE), str(BUNDLE)], "holds a bundle"),
    ],
)
def test_what_is_refused(
    hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    found = demur(*arguments)
    assert found.exit_code == 2
    assert words in " ".join(found.output.split())
    assert not (tmp_path / "there").exists()


def test_a_signature_is_demanded_and_checked(hub: FakeHub, tmp_path: Path) -> None:
    signed = Path(shutil.copytree(BUNDLE, tmp_path / "signed"))
    key = tmp_path / "key.pem"
    assert demur("keys", "signing", key).exit_code == 0
    assert demur("sign", signed, "--key", key).exit_code == 0
    for source, expected in ((signed, 0), (BUNDLE, 2)):
        assert demur("push", source, URI).exit_code == 0
        pulled = demur("pull", URI, "--out", tmp_path / "here", "--force", "--trusted-keys", f"{key}.pub")
        assert pulled.exit_code == expected, pulled.output


def test_a_uri_of_any_command_must_be_signed_where_the_service_would_demand_it(
    hub: FakeHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = tmp_path / "key.pem"
    assert demur("keys", "signing", key).exit_code == 0
    assert demur("push", BUNDLE, URI).exit_code == 0
    monkeypatch.setenv("DEMUR_TRUSTED_KEYS", f"{key}.pub")
    for arguments in (["inspect", URI], ["pull", URI, "--out", tmp_path / "here"]):
        found = demur(*arguments)
        assert found.exit_code == 2
        assert "found no signature" in found.output
    monkeypatch.setenv("DEMUR_TRUSTED_KEYS", "")  # as of a variable of a script that is not set
    for arguments in (["inspect", URI], ["pull", URI, "--out", tmp_path / "here"]):
        found = demur(*arguments)
        assert found.exit_code == 2
        assert "trusted keys" in found.output
    assert not (tmp_path / "here").exists()


def test_a_new_repository_is_private_and_the_hub_learns_nothing_of_this_machine(hub: FakeHub, tmp_path: Path) -> None:
    variables = environment(HF_ENDPOINT=hub.url, HF_TOKEN="hf_secret", HOME=str(tmp_path))
    variables.pop("HF_HUB_DISABLE_TELEMETRY", None)
    command = [sys.executable, "-m", "demur", "push", str(BUNDLE), URI]
    assert subprocess.run(command, env=variables, cwd=tmp_path, timeout=300).returncode == 0
    assert hub.private == {"acme/digits": True}
    agents = {headers["user-agent"] for _, headers in hub.requests}
    assert all(re.fullmatch(r"unknown/None; hf_hub/[0-9.]+; python/[0-9.]+", agent) for agent in agents), agents
    assert {line.split()[1].split("?")[0] for line, _ in hub.requests} <= {
        "/api/repos/create",
        "/api/models/acme/digits",
        "/api/validate-yaml",
        "/api/models/acme/digits/preupload/main",
        "/api/models/acme/digits/commit/main",
    }
