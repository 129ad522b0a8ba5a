"""The form of signature.json. Checking a signature needs cryptography: see `demur.service.security.signing`."""

import base64
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from .files import BundleError

ALGORITHM = "ed25519"
SIGNATURE_BYTES = 64
MAX_FILE_BYTES = 4096
REMEDY = "sign the bundle again with `demur sign`, or remove the file"


@dataclass(frozen=True)
class Signature:
    """A signature over the bytes of manifest.json; `key_id` names the key."""

    key_id: str
    value: bytes
    algorithm: str = ALGORITHM

    def __post_init__(self) -> None:
        if re.fullmatch("[0-9a-f]{16}", self.key_id) is None:
            raise ValueError(f"key_id: found {self.key_id!r:.100}, expected 16 hexadecimal digits")
        if self.algorithm != ALGORITHM:
            raise ValueError(f"algorithm: found {self.algorithm!r:.100}, expected {ALGORITHM!r}")
        if len(self.value) != SIGNATURE_BYTES:
            raise ValueError(f"signature: found {len(self.value)} bytes, expected {SIGNATURE_BYTES}")


# Called with the folder (for messages), the bytes of manifest.json, and the signature or None. Raises `BundleError`
# where the signature does not suffice.
Verify = Callable[[Path, bytes, Signature | None], None]


def signature_to_bytes(signature: Signature) -> bytes:
    """The content of signature.json, in the only form that a reader accepts."""
    document = {
        "algorithm": signature.algorithm,
        "key_id": signature.key_id,
        "signature": base64.b64encode(signature.value).decode(),
    }
    return json.dumps(document).encode() + b"\n"


def signature_from_bytes(file: Path, data: bytes) -> Signature:
    """The signature in `data`; `BundleError` naming `file` for anything but what `signature_to_bytes` writes."""
    try:
        document = json.loads(data)
        if not isinstance(document, dict) or {*document} != {"algorithm", "key_id", "signature"}:
            raise ValueError("expected an object with algorithm, key_id and signature")
        if not all(isinstance(value, str) for value in document.values()):
            raise ValueError("expected strings only")
        value = base64.b64decode(document["signature"], validate=True)
        signature = Signature(document["key_id"], value, document["algorithm"])
    except (ValueError, RecursionError) as error:
        raise BundleError(file, f"no sound signature: {error}", REMEDY) from error
    if signature_to_bytes(signature) != data:  # so that no byte can be changed unnoticed
        raise BundleError(file, "no sound signature: found other spacing, order or encoding than expected", REMEDY)
    return signature
