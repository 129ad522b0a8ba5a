"""Compressing an answer, where the client asks for it by name."""

import gzip
import zlib

# Tensors of noise hardly shrink, whatever the effort.
LEVEL = 1
CODINGS = frozenset({"gzip", "deflate"})


def coding(accept_encoding: str | None) -> str | None:
    """The one coding that the client names; a list of several is what every client sends, and no wish."""
    name = (accept_encoding or "").strip().lower()
    return name if name in CODINGS else None


def compressed(body: bytes, name: str | None) -> bytes:
    """The body in this coding; "deflate" is zlib's format, as its clients have it."""
    if name == "gzip":
        return gzip.compress(body, LEVEL, mtime=0)
    return zlib.compress(body, LEVEL) if name == "deflate" else body
