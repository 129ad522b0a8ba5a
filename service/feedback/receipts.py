"""Receipts: what was answered, signed, so that the client can keep it until the labels come.

BASE64(name NUL version NUL digest[:8] nonce answers) "." BASE64(seconds) "." BASE64(HMAC-SHA-256)

All replicas share the secret, so any of them takes a receipt that another one gave. It is not encrypted.
"""

import hashlib
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from itsdangerous import BadSignature, TimestampSigner
from itsdangerous.encoding import base64_decode, base64_encode

SALT = b"demur feedback receipt, version 1"  # a signature for another purpose, or of another form, is none here
DIGEST_BYTES = 8  # tells the bundles of one service apart; nobody else can make a receipt
# Without a nonce, equal answers to different requests of the same second would have one receipt, and count once.
NONCE_BYTES = 6
LEAST_SECRET_BYTES = 32
MOST_FILE_BYTES = 2**16


class SecretFileError(ValueError):
    """The file of secrets cannot be used; the message shows none of them."""


class ReceiptError(ValueError):
    """A receipt was changed, is none of this service, or is too old."""


@dataclass(frozen=True)
class Receipt:
    """Which model answered, by the first hexadecimal digits of its digest too, and what (`parse_answers` reads it).

    identity: bytes that no other receipt has.
    """

    name: str
    version: str
    digest: str
    answers: bytes
    identity: bytes


def read_secrets(file: Path) -> list[bytes]:
    """The secrets in the file, one a line; raises `SecretFileError`."""
    expected = f"expected a secret of at least {LEAST_SECRET_BYTES} bytes in each line; write one with `openssl rand"
    expected += f" -hex {LEAST_SECRET_BYTES} > FILE`, and name it in DEMUR_FEEDBACK_SECRET_FILE"
    try:
        with open(file, "rb") as stream:
            data = stream.read(MOST_FILE_BYTES + 1)
    except OSError as error:
        raise SecretFileError(f"{file}: cannot be read ({error.strerror}), {expected}") from None
    if len(data) > MOST_FILE_BYTES:
        raise SecretFileError(f"{file}: found more than {MOST_FILE_BYTES} bytes, {expected}")
    secrets = [line.strip() for line in data.split(b"\n")]
    for number, secret in enumerate(secrets, 1):
        if 0 < len(secret) < LEAST_SECRET_BYTES:
            raise SecretFileError(f"{file}, line {number}: found {len(secret)} bytes, {expected}")
    if not any(secrets):
        raise SecretFileError(f"{file}: found no secret, {expected}")
    return [secret for secret in secrets if secret]


class ReceiptSigner:
    """Signs with the first secret, and takes receipts that any of them signed in the last `max_age` seconds."""

    def __init__(self, secrets: Sequence[bytes], max_age: float, now: Callable[[], float] = time.time) -> None:
        # itsdangerous signs with the last key.
        self._signer = TimestampSigner(
            [*reversed(secrets)], salt=SALT, key_derivation="hmac", digest_method=hashlib.sha256
        )
        self._max_age, self._now = max_age, now

    def sign(self, name: str, version: str, digest: str, answers: bytes) -> str:
        """The receipt of the model's answers; digest: at least so many hexadecimal digits as are kept."""
        model = f"{name}\0{version}\0".encode() + bytes.fromhex(digest[: 2 * DIGEST_BYTES])
        return self._signer.sign(base64_encode(model + os.urandom(NONCE_BYTES) + answers)).decode()

    def open(self, receipt: str) -> Receipt:
        """What was signed; raises `ReceiptError`. The comparison of signatures takes the same time for all."""
        found = f"found {receipt!r:.40}"
        try:
            value, signed_at = self._signer.unsign(receipt, return_timestamp=True)
            name, version, rest = base64_decode(value).split(b"\0", 2)
            digest, answers = rest[:DIGEST_BYTES].hex(), rest[DIGEST_BYTES + NONCE_BYTES :]
            # Of what was signed: a signature can be written in several ways.
            identity = hashlib.sha256(receipt.rpartition(".")[0].encode()).digest()[:16]
            opened = Receipt(name.decode(), version.decode(), digest, answers, identity)
        except (BadSignature, ValueError, OverflowError, OSError):
            expected = "expected the unchanged receipt of an answer, signed with this service's secret"
            raise ReceiptError(f"{found}, {expected}") from None
        # A receipt from the future is another replica's whose clock is ahead.
        if (age := self._now() - signed_at.timestamp()) > self._max_age:
            limit = f"{self._max_age:g} s at most (DEMUR_FEEDBACK_MAX_AGE_SECONDS)"
            raise ReceiptError(f"{found}, which is {age:.0f} s old, expected {limit}")
        return opened
