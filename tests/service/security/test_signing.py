"""Signed bundles: what is demanded is checked over the very bytes that are read."""

import base64
import dataclasses
import json
import os
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from demur.service.bundle import (
    MANIFEST,
    SIGNATURE,
    BundleError,
    Signature,
    check_destination,
    read_bundle,
    read_manifest,
    reseal_manifest,
)
from demur.service.format.signature import signature_to_bytes
from demur.service.security.signing import TrustedKeys, key_id, sign_bundle
from tests.support.bundles import Synthetic, rewrite
from tests.support.server import ROOT, TIMEOUT, environment
from tests.support.signing import KEY, OTHER, TRUSTED
from tests.support.tamper import contents, copy_bundle, load_json, replaced, save_json


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
    refused(folder, "found no signature", name, "`demur sign`")
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
    file.symlink_to("/dev/zero")
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


def test_reading_a_bundle_needs_no_cryptography(signed: Path) -> None:
    """The bundle's own modules do without cryptography; only checking signatures needs it."""
    code = (
        "import sys\n"
        "sys.modules['cryptography'] = None\n"
        "from demur.service.bundle import read_bundle\n"
        f"print(read_bundle({str(signed)!r}).signature.key_id)"
    )
    command = [sys.executable, "-W", "error", "-c", code]
    ended = subprocess.run(
        command, cwd=ROOT, env=environment(), text=True, capture_output=True, timeout=TIMEOUT, check=False
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.strip() == key_id(KEY.public_key())


@pytest.mark.parametrize("alone", [True, False])
def test_a_mount_is_signed_inside(folder: Path, monkeypatch: pytest.MonkeyPatch, alone: bool) -> None:
    """Beside it is another file system."""
    made = list[Path]()

    def noted(*arguments: Any, **named: Any) -> tuple[int, str]:
        made.append(named["dir"])
        return mkstemp(*arguments, **named)

    mkstemp = tempfile.mkstemp
    monkeypatch.setattr(tempfile, "mkstemp", noted)
    monkeypatch.setattr(os.path, "ismount", lambda _: alone)
    sign_bundle(folder, KEY)
    assert made == [folder if alone else folder.parent]
