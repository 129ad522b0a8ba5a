"""Keys to sign with, always the same."""

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from demur.service.security.signing import TrustedKeys

KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
OTHER = Ed25519PrivateKey.from_private_bytes(bytes(32))
TRUSTED = TrustedKeys([KEY.public_key()])


def pem(*keys: Ed25519PrivateKey) -> str:
    encoding, form = serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    return "".join(key.public_key().public_bytes(encoding, form).decode() for key in keys)


def private_pem() -> str:
    form = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    return KEY.private_bytes(serialization.Encoding.PEM, *form).decode()
