"""Signed bundles: what is demanded is checked over the very bytes that are read; the commands that sign."""

import base64
import dataclasses
import json
import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from service.bundle import (
    MANIFEST,
    SIGNATURE,
    BundleError,
    Signature,
    check_destination,
    read_bundle,
    read_manifest,
    reseal_manifest,
)
from service.format.signature import signature_to_bytes
from service.keys import app
from service.models.loading import load_named, load_predictor
from service.models.trials import Trials
from service.security.signing import (
    SigningKeyError,
    TrustedKeys,
    key_id,
    load_signing_key,
    new_signing_key,
    sign_bundle,
)
from service.settings import Settings
from tests.support.bundles import Synthetic, rewrite
from tests.support.server import ROOT, TIMEOUT, environment, run_to_end
from tests.support.tamper import contents, copy_bundle, load_json, replaced, save_json

KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
OTHER = Ed25519PrivateKey.from_private_bytes(bytes(32))
TRUSTED = TrustedKeys([KEY.public_key()])


def pem(*keys: Ed25519PrivateKey) -> str:
    encoding, form = serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    return "".join(key.public_key().public_bytes(encoding, form).decode() for key in keys)


@pytest.fixture
def signed(folder: Path) -> Path:
    sign_bundle(folder, KEY)
    return folder


@pytest.fixture
def trusted(tmp_path: Path) -> Path:
    """A file of trusted keys with words between them."""
    file = tmp_path / "trusted.pem"
    file.write_text(f"the release key\n{pem(KEY)}")
    return file


def refused(folder: Path, *fragments: str, file: str = SIGNATURE, by: TrustedKeys | None = TRUSTED) -> None:
    with pytest.raises(BundleError) as caught:
        read_bundle(folder, by)
    assert caught.value.file == str(folder / file)
    for fragment in (*fragments, "remedy: "):
        assert fragment in str(caught.value)


def test_a_signed_bundle_is_the_same_bundle(signed: Path, classification: Synthetic) -> None:
    plain, bundle = read_bundle(classification.path), read_bundle(signed, TRUSTED)
    assert (bundle.digest, bundle.manifest) == (plain.digest, plain.manifest)
    assert read_manifest(signed) == read_manifest(classification.path)
    assert plain.signature is None
    assert bundle.signature is not None
    assert bundle.signature.key_id == key_id(KEY.public_key())
    assert bundle.manifest_bytes == (signed / MANIFEST).read_bytes()
    assert {**contents(classification.path), SIGNATURE: signature_to_bytes(bundle.signature)} == contents(signed)
    KEY.public_key().verify(bundle.signature.value, bundle.manifest_bytes)


def test_the_form_of_the_file_is_fixed(signed: Path) -> None:
    value = base64.b64encode(KEY.sign((signed / MANIFEST).read_bytes())).decode()
    expected = f'{{"algorithm": "ed25519", "key_id": "{key_id(KEY.public_key())}", "signature": "{value}"}}\n'
    assert (signed / SIGNATURE).read_text() == expected
    assert key_id(KEY.public_key()) == "56475aa75463474c"
    assert stat.S_IMODE((signed / SIGNATURE).stat().st_mode) == 0o644


def test_what_is_not_signed_by_a_trusted_key_is_refused(folder: Path) -> None:
    name, other = key_id(KEY.public_key()), key_id(OTHER.public_key())
    refused(folder, "found no signature", name, "`probity sign`")
    sign_bundle(folder, OTHER)
    refused(folder, f"found the key {other}", name)
    forged = Signature(name, OTHER.sign((folder / MANIFEST).read_bytes()))
    (folder / SIGNATURE).write_bytes(signature_to_bytes(forged))
    refused(folder, f"found a signature by the key {name} that is not one of this manifest.json")
    assert read_bundle(folder).signature == forged  # where none is demanded, it says nothing
    sign_bundle(folder, KEY)  # in place of the other
    assert read_bundle(folder, TRUSTED).signature is not None


def test_a_consistent_change_is_refused_before_it_is_parsed(signed: Path) -> None:
    save_json(signed, replaced(load_json(signed), ("temperature",), 2.0))
    assert read_bundle(signed).manifest.temperature == 2.0
    refused(signed, "not one of this manifest.json")
    (signed / MANIFEST).write_bytes(b"[" * 1000)
    refused(signed, "not one of this manifest.json")


def test_the_signature_of_another_bundle_is_refused(signed: Path, images: Synthetic, tmp_path: Path) -> None:
    other = copy_bundle(images.path, tmp_path / "other")
    (other / SIGNATURE).write_bytes((signed / SIGNATURE).read_bytes())
    refused(other, "not one of this manifest.json")


@given(data=st.data())
@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@pytest.mark.parametrize("file", [MANIFEST, SIGNATURE])
def test_any_changed_byte_is_refused(signed: Path, file: str, data: st.DataObject) -> None:
    whole = (signed / file).read_bytes()
    position = data.draw(st.integers(0, len(whole) - 1))
    byte = data.draw(st.integers(0, 255).filter(lambda value: value != whole[position]))
    try:
        (signed / file).write_bytes(whole[:position] + bytes([byte]) + whole[position + 1 :])
        refused(signed)
    finally:
        (signed / file).write_bytes(whole)
    assert read_bundle(signed, TRUSTED).signature is not None


CHANGES: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda data: b"",
    "cut": lambda data: data[:-2],
    "a line feed less": lambda data: data[:-1],
    "a line feed more": lambda data: data + b"\n",
    "other spacing": lambda data: data.replace(b": ", b":"),
    "another order": lambda data: json.dumps(dict(reversed(json.loads(data).items()))).encode() + b"\n",
    "a field more": lambda data: json.dumps({**json.loads(data), "x": "y"}).encode() + b"\n",
    "a field twice": lambda data: data.replace(b"{", b'{"key_id": "0", '),
    "a field less": lambda data: b'{"algorithm": "ed25519"}\n',
    "a number": lambda data: json.dumps({**json.loads(data), "key_id": 1}).encode() + b"\n",
    "another algorithm": lambda data: data.replace(b"ed25519", b"ed448"),
    "no algorithm": lambda data: data.replace(b"ed25519", b"none"),
    "capital letters": lambda data: data.replace(b"56475aa7", b"56475AA7"),
    "a short signature": lambda data: json.dumps({**json.loads(data), "signature": "AAAA"}).encode() + b"\n",
    "no base64": lambda data: json.dumps({**json.loads(data), "signature": "!" * 88}).encode() + b"\n",
    "a list": lambda data: b"[" + data + b"]",
    "deep": lambda data: b"[" * 4000,
    "not UTF-8": lambda data: b"\xff" + data,
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("by", [TRUSTED, None], ids=["demanded", "not demanded"])
def test_another_form_is_refused_whether_a_signature_is_needed_or_not(
    signed: Path, change: str, by: TrustedKeys | None
) -> None:
    data = (signed / SIGNATURE).read_bytes()
    (signed / SIGNATURE).write_bytes(CHANGES[change](data))
    refused(signed, "no sound signature", by=by)


@pytest.mark.parametrize("by", [TRUSTED, None], ids=["demanded", "not demanded"])
def test_it_must_be_a_small_regular_file(signed: Path, by: TrustedKeys | None) -> None:
    file = signed / SIGNATURE
    data = file.read_bytes()
    file.write_bytes(data + b" " * 5000)
    refused(signed, "expected at most 4096", by=by)
    file.rename(signed.parent / "elsewhere")
    file.symlink_to(signed.parent / "elsewhere")
    refused(signed, "regular file", by=by)
    file.unlink()
    file.mkdir()
    refused(signed, "regular file", by=by)


def test_the_manifest_cannot_list_it(signed: Path) -> None:
    entry = {"sha256": "0" * 64, "bytes": 0}
    save_json(signed, replaced(load_json(signed), ("files", SIGNATURE), entry))
    refused(signed, f"files: found the name '{SIGNATURE}'", file=MANIFEST, by=None)


def test_a_signed_bundle_can_be_replaced_and_the_signature_goes(signed: Path, images: Synthetic) -> None:
    check_destination(signed)
    rewrite(images.path, signed)
    assert not (signed / SIGNATURE).exists()
    assert read_bundle(signed).digest == read_bundle(images.path).digest


def test_a_manifest_written_anew_drops_the_signature(signed: Path) -> None:
    manifest = read_bundle(signed).manifest
    reseal_manifest(signed, dataclasses.replace(manifest, temperature=2.0))
    assert not (signed / SIGNATURE).exists()
    assert read_bundle(signed).manifest.temperature == 2.0


def test_a_broken_bundle_is_not_signed(folder: Path) -> None:
    (folder / "model.onnx").write_bytes(b"changed")
    with pytest.raises(BundleError, match=r"model\.onnx"):
        sign_bundle(folder, KEY)
    assert not (folder / SIGNATURE).exists()


def test_signing_leaves_nothing_else_behind_and_follows_a_link(folder: Path) -> None:
    link = folder.parent / "current"
    link.symlink_to(folder.name)
    before = set(folder.parent.iterdir())
    sign_bundle(link, KEY)
    assert set(folder.parent.iterdir()) == before
    assert link.is_symlink()
    assert read_bundle(folder, TRUSTED).signature is not None


def test_a_bundle_that_is_replaced_while_it_is_signed_is_told(
    folder: Path, images: Synthetic, monkeypatch: pytest.MonkeyPatch
) -> None:
    replace = Path.replace

    def swap_first(self: Path, target: Path) -> Path:
        rewrite(images.path, folder)
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", swap_first)
    with pytest.raises(BundleError, match=r"not one of this manifest\.json"):
        sign_bundle(folder, KEY)


# ------------------------------------------------------------------ the service that demands signatures


def test_the_service_loads_what_is_signed_by_a_trusted_key_only(folder: Path, trusted: Path) -> None:
    demanding = Settings(bundle=(str(folder),), trusted_keys=trusted, threads=1)
    with pytest.raises(BundleError, match=r"found no signature.*trusted"):
        load_named(demanding)
    sign_bundle(folder, OTHER)
    with pytest.raises(BundleError, match="found the key"):
        load_predictor(folder, demanding, Trials(demanding))
    trusted.write_text(pem(OTHER, KEY))  # from now on, without a restart
    assert load_predictor(folder, demanding, Trials(demanding)).digest == read_manifest(folder)[1]
    assert len(load_named(Settings(bundle=(str(folder),), threads=1))) == 1


def other_key() -> str:
    public = ec.generate_private_key(ec.SECP256R1()).public_key()
    encoding, form = serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    return public.public_bytes(encoding, form).decode()


def private_pem() -> str:
    form = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    return KEY.private_bytes(serialization.Encoding.PEM, *form).decode()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "found no block 'BEGIN PUBLIC KEY'"),
        (pem(KEY).replace("END", "AND"), "found no block"),
        (private_pem(), "found a block 'PRIVATE KEY', expected 'PUBLIC KEY' only"),
        (other_key(), "found a key of another kind"),
        (pem(KEY) + "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n", "trusted keys: "),
        ("x" * (2**20 + 1), "found more than"),
    ],
    ids=["empty", "no end", "private", "another kind", "garbage", "huge"],
)
def test_bad_trusted_keys_are_refused(signed: Path, trusted: Path, content: str, message: str) -> None:
    trusted.write_text(content)
    with pytest.raises(BundleError, match=message) as caught:
        load_named(Settings(bundle=(str(signed),), trusted_keys=trusted))
    assert caught.value.file == str(trusted)
    assert private_pem().splitlines()[1] not in str(caught.value)
    with pytest.raises(BundleError, match=message):  # also where every bundle comes later
        load_named(Settings(models=signed.parent, trusted_keys=trusted))


@pytest.mark.parametrize("workers", ["1", "2"])
def test_the_service_does_not_start_with_an_unsigned_bundle(folder: Path, trusted: Path, workers: str) -> None:
    extra = {"PROBITY_TRUSTED_KEYS": str(trusted), "PROBITY_WORKERS": workers}
    status, out, errors = run_to_end(str(folder), **extra)
    assert (status, out) == (2, "")
    (line,) = errors.splitlines()
    assert line.startswith(f"error: {folder / SIGNATURE}: found no signature")


# ------------------------------------------------------------------ the commands


def run(*arguments: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(app, list(arguments))
    return result.exit_code, result.stdout, result.stderr


def test_keys_are_made_once_and_sign(folder: Path, tmp_path: Path) -> None:
    status, out, _ = run("signing", str(tmp_path))
    assert status == 0
    private, public = tmp_path / "signing-key.pem", tmp_path / "signing-key.pem.pub"
    assert stat.S_IMODE(private.stat().st_mode) == 0o600
    name = key_id(load_signing_key(private).public_key())
    for word in (name, str(private), str(public), "PROBITY_TRUSTED_KEYS"):
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
    from probity.cli import app as probity

    for arguments in (["sign", "--help"], ["keys", "new", "--help"], ["keys", "signing", "--help"]):
        assert CliRunner().invoke(probity, arguments).exit_code == 0


def test_reading_a_bundle_needs_no_cryptography(signed: Path) -> None:
    """The bundle's own modules do without cryptography; only checking signatures needs it."""
    code = (
        "import sys\n"
        "sys.modules['cryptography'] = None\n"
        "from service.bundle import read_bundle\n"
        f"print(read_bundle({str(signed)!r}).signature.key_id)"
    )
    command = [sys.executable, "-W", "error", "-c", code]
    ended = subprocess.run(
        command, cwd=ROOT, env=environment(), text=True, capture_output=True, timeout=TIMEOUT, check=False
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.strip() == key_id(KEY.public_key())
