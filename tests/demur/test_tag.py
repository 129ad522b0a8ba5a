"""`demur tag`: the same bundle under another name or version."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from demur.cli import app
from demur.service.bundle import SIGNATURE, read_bundle
from demur.service.inference.predictor import Predictor
from tests.support.server import ROOT

BUNDLE = ROOT / "tests" / "golden" / "v1" / "bundle"


def tag(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["tag", *map(str, arguments)])


def test_a_copy_has_another_name_and_version_and_answers_the_same(tmp_path: Path) -> None:
    found = tag(BUNDLE, "--out", tmp_path / "copy", "--name", "numbers", "--version", "7")
    assert found.exit_code == 0, found.output
    assert "numbers version 7" in found.output
    before, after = read_bundle(BUNDLE), read_bundle(tmp_path / "copy")
    assert (after.manifest.name, after.manifest.version) == ("numbers", "7")
    assert after.manifest.files == before.manifest.files
    assert after.digest != before.digest
    inputs = np.zeros((2, *before.manifest.input.shape), np.float32)
    first, second = (Predictor.load(path).predict(inputs) for path in (BUNDLE, tmp_path / "copy"))
    np.testing.assert_array_equal(first.variance, second.variance)


def test_what_is_not_said_stays_and_a_signature_does_not(tmp_path: Path) -> None:
    source = Path(shutil.copytree(BUNDLE, tmp_path / "source"))
    key, before = tmp_path / "key.pem", read_bundle(BUNDLE).manifest
    assert CliRunner().invoke(app, ["keys", "signing", str(key)]).exit_code == 0
    assert CliRunner().invoke(app, ["sign", str(source), "--key", str(key)]).exit_code == 0
    assert (source / SIGNATURE).is_file()
    assert tag(source, "--out", source, "--force", "--version", "2").exit_code == 0
    found = read_bundle(source)
    assert (found.manifest.name, found.manifest.version, found.signature) == (before.name, "2", None)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--name", "a/b"], "--name: found 'a/b', expected 1 to 200 characters without '/'"),
        (["--name", ".."], "--name: found '..', expected 1 to 200 characters without '/'"),
        ([], "expected --name, --version or both"),
        (
            ["--name", "x", "--out", str(BUNDLE)],
            "holds a bundle (remedy: remove it, or choose another destination; a command replaces it with --force",
        ),
    ],
)
def test_what_is_refused(tmp_path: Path, options: list[str], words: str) -> None:
    out = [] if "--out" in options else ["--out", tmp_path / "copy"]
    found = tag(BUNDLE, *out, *options)
    assert found.exit_code == 2
    assert words in " ".join(found.output.split())
    assert not (tmp_path / "copy").exists()


def test_no_bundle_is_refused(tmp_path: Path) -> None:
    found = tag(tmp_path, "--out", tmp_path / "copy", "--name", "x")
    assert found.exit_code == 2
    assert "missing file" in found.output
