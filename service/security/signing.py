"""Signed bundles: Ed25519 over manifest.json as it is on disk, and through the hashes in it over everything."""

import hashlib
import os
import re
from collections.abc import Iterable
from pathlib import Path

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from ..bundle import MANIFEST, SIGNATURE, BundleError, Signature, read_bundle
from ..format.files import replace_file
from ..format.signature import signature_to_bytes

MAX_KEY_BYTES = 2**20
BLOCK = re.compile(rb"-----BEGIN ([A-Z0-9 ]+)-----.*?-----END \1-----", re.DOTALL)
PUBLIC_SUFFIX = ".pub"


class SigningKeyError(ValueError):
    """A private key cannot be written or read: the message names the file and the reason."""


def key_id(key: Ed25519PublicKey) -> str:
    """The first 16 hexadecimal digits of the SHA-256 of the raw public key."""
    return hashlib.sha256(key.public_bytes_raw()).hexdigest()[:16]


class TrustedKeys:
    """A `Verify` that accepts bundles signed by one of its keys only."""

    def __init__(self, keys: Iterable[Ed25519PublicKey], file: Path | None = None) -> None:
        self._keys = {key_id(key): key for key in keys}
        self._where = f" in {file}" if file is not None else ""

    @classmethod
    def from_file(cls, file: Path) -> "TrustedKeys":
        """Read the PEM blocks `PUBLIC KEY` in `file`; text between them is comment. Raises `BundleError`."""
        remedy = f"put the public keys there that `demur keys signing` wrote (NAME{PUBLIC_SUFFIX})"
        try:
            data = _read(file)
            keys = [_public_key(match) for match in BLOCK.finditer(data)]
            if not keys:
                raise ValueError("found no block 'BEGIN PUBLIC KEY', expected at least one")
        except (OSError, ValueError, UnsupportedAlgorithm) as error:
            raise BundleError(file, f"trusted keys: {error}", remedy) from None
        return cls(keys, file)

    def __call__(self, folder: Path, manifest: bytes, signature: Signature | None) -> None:
        """Raises `BundleError` unless `signature` is that of a trusted key over `manifest`."""
        expected = f"expected a signature by one of the trusted keys ({', '.join(sorted(self._keys))}){self._where}"
        if signature is None:
            raise BundleError(folder / SIGNATURE, f"found no signature, {expected}", "sign it with `demur sign`")
        key = self._keys.get(signature.key_id)
        if key is None:
            remedy = "add that public key to the trusted ones if you know whose it is, or sign the bundle with another"
            raise BundleError(folder / SIGNATURE, f"found the key {signature.key_id}, {expected}", remedy)
        try:
            key.verify(signature.value, manifest)
        except InvalidSignature:
            found = f"found a signature by the key {signature.key_id} that is not one of this {MANIFEST}"
            remedy = "something was changed after signing: copy the bundle again, or fit and sign it again"
            raise BundleError(folder / SIGNATURE, f"{found}, expected one that is", remedy) from None


def _public_key(block: "re.Match[bytes]") -> Ed25519PublicKey:
    label = block[1].decode()
    if label != "PUBLIC KEY":
        raise ValueError(f"found a block {label!r}, expected 'PUBLIC KEY' only")
    key = serialization.load_pem_public_key(block[0])
    if not isinstance(key, Ed25519PublicKey):
        raise ValueError(f"found a key of another kind ({type(key).__name__}), expected Ed25519")
    return key


def _read(file: Path) -> bytes:
    with open(file, "rb") as stream:
        data = stream.read(MAX_KEY_BYTES + 1)
    if len(data) > MAX_KEY_BYTES:
        raise ValueError(f"found more than {MAX_KEY_BYTES} bytes, expected a few keys")
    return data


def new_signing_key(file: Path) -> tuple[Path, str]:
    """Write a new private key to `file` (PEM, mode 0600) and the public one beside it. Returns the path of the public
    key and its id. `SigningKeyError` where either file exists: an overwritten key is lost."""
    public_file = file.with_name(file.name + PUBLIC_SUFFIX)
    key = Ed25519PrivateKey.generate()
    form = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    private = key.private_bytes(serialization.Encoding.PEM, *form)
    public = key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    if public_file.exists():  # checked first, so that no private key is written without its public one
        raise SigningKeyError(f"{public_file}: exists; nothing was overwritten, choose another name")
    _write_new(file, private, 0o600)
    _write_new(public_file, public, 0o644)
    return public_file, key_id(key.public_key())


def _write_new(file: Path, data: bytes, mode: int) -> None:
    try:
        with open(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as stream:
            stream.write(data)
    except FileExistsError:
        raise SigningKeyError(f"{file}: exists; nothing was overwritten, choose another name") from None
    except OSError as error:
        raise SigningKeyError(f"{file}: cannot be written ({error.strerror})") from None


def load_signing_key(file: Path) -> Ed25519PrivateKey:
    """The private key in `file`; raises `SigningKeyError`."""
    try:
        key = serialization.load_pem_private_key(_read(file), password=None)
    except OSError as error:
        raise SigningKeyError(f"{file}: cannot be read ({error.strerror})") from None
    except TypeError:
        raise SigningKeyError(f"{file}: found an encrypted key, expected a plain one; decrypt it first") from None
    except (ValueError, UnsupportedAlgorithm):
        raise SigningKeyError(f"{file}: found something else, expected an Ed25519 key in PEM") from None
    if not isinstance(key, Ed25519PrivateKey):
        raise SigningKeyError(f"{file}: found a key of another kind ({type(key).__name__}), expected Ed25519")
    return key


def sign_bundle(path: Path, key: Ed25519PrivateKey) -> Signature:
    """Sign the bundle at `path`, in place of any signature before; raises `BundleError`.

    Only a sound bundle is signed, and exactly the manifest that was checked. The check after signing fails where the
    bundle was replaced meanwhile.
    """
    folder = path.resolve()
    signature = Signature(key_id(key.public_key()), key.sign(read_bundle(folder).manifest_bytes))
    # The temporary file stands beside the bundle: inside, who replaces the bundle meanwhile would not take it for one.
    alone = os.path.ismount(folder) or not os.access(folder.parent, os.W_OK)  # nobody replaces it then
    try:
        replace_file(folder / SIGNATURE, signature_to_bytes(signature), folder if alone else folder.parent)
    except OSError as error:
        remedy = "make the bundle writable"
        raise BundleError(folder / SIGNATURE, f"could not be written ({error.strerror or error})", remedy) from error
    read_bundle(folder, TrustedKeys([key.public_key()]))
    return signature
