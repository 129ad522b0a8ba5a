"""The commands that make keys and sign."""

import os
import stat
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from typer.testing import CliRunner

from demur.service.bundle import SIGNATURE, BundleError, read_bundle
from demur.service.keys import app
from demur.service.security.signing import (
    SigningKeyError,
    TrustedKeys,
    key_id,
    load_signing_key,
    new_signing_key,
    sign_bundle,
)
from tests.support.signing import KEY, pem
from tests.support.tamper import contents


def run(*arguments: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, list(arguments))
    return result.exit_code, result.stdout, result.stderr


def test_keys_are_made_once_and_sign(folder: Path, tmp_path: Path) -> None:
    status, out, _ = run("signing", str(tmp_path))
    assert status == 0
    private, public = tmp_path / "signing-key.pem", tmp_path / "signing-key.pem.pub"
    assert stat.S_IMODE(private.stat().st_mode) == 0o600
    name = key_id(load_signing_key(private).public_key())
    for word in (name, str(private), str(public), "DEMUR_TRUSTED_KEYS"):
        assert word in out
    assert private.read_text().splitlines()[1] not in out
    assert run("sign", str(folder), "--key", str(private)) == (0, f"{folder}: signed with the key {name}\n", "")
    assert read_bundle(folder, TrustedKeys.from_file(public)).signature is not None

    before = contents(tmp_path / "bundle"), private.read_bytes(), public.read_bytes()
    status, _, errors = run("signing", str(private))
    assert status == 2
    assert "exists; nothing was overwritten" in errors
    private.unlink()  # the public key alone is not overwritten either
    status, _, errors = run("signing", str(private))
    assert status == 2
    assert not private.exists()
    assert public.read_bytes() == before[2]


@pytest.mark.parametrize("kind", ["missing", "text", "public", "another kind", "encrypted", "folder"])
def test_what_is_no_signing_key_is_one_line(folder: Path, tmp_path: Path, kind: str) -> None:
    file = tmp_path / "key"
    elliptic = ec.generate_private_key(ec.SECP256R1())
    form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    content = {
        "text": b"hello",
        "public": pem(KEY).encode(),
        "another kind": elliptic.private_bytes(*form, serialization.NoEncryption()),
        "encrypted": KEY.private_bytes(*form, serialization.BestAvailableEncryption(b"secret")),
    }
    if kind == "folder":
        file.mkdir()
    elif kind != "missing":
        file.write_bytes(content[kind])
    status, out, errors = run("sign", str(folder), "--key", str(file))
    assert (status, out) == (2, "")
    (line,) = errors.splitlines()
    assert line.startswith(f"error: {file}: ")
    assert not (folder / SIGNATURE).exists()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_cannot_be_written_is_told(folder: Path, tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    try:
        with pytest.raises(BundleError, match="could not be written"):
            sign_bundle(folder, KEY)
        with pytest.raises(SigningKeyError, match="cannot be written"):
            new_signing_key(tmp_path / "key")
    finally:
        tmp_path.chmod(0o700)


def test_the_offline_commands_are_the_same() -> None:
    from demur.cli import app as demur

    for arguments in (["sign", "--help"], ["keys", "new", "--help"], ["keys", "signing", "--help"]):
        assert CliRunner().invoke(demur, arguments).exit_code == 0
