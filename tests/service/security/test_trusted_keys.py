"""The service that demands signatures by trusted keys."""

from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from demur.service.bundle import SIGNATURE, BundleError, read_manifest
from demur.service.models.loading import load_named, load_predictor
from demur.service.models.trials import Trials
from demur.service.security.signing import sign_bundle
from demur.service.settings import Settings
from tests.support.server import run_to_end
from tests.support.signing import KEY, OTHER, pem, private_pem


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
    extra = {"DEMUR_TRUSTED_KEYS": str(trusted), "DEMUR_WORKERS": workers}
    status, out, errors = run_to_end(str(folder), **extra)
    assert (status, out) == (2, "")
    (line,) = errors.splitlines()
    assert line.startswith(f"error: {folder / SIGNATURE}: found no signature")
