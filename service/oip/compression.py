"""Compress an answer where the client asks for it by name."""

import gzip
import zlib

# Numbers hardly shrink, whatever the level.
LEVEL = 1
CODINGS = frozenset({"gzip", "deflate"})


def coding(accept_encoding: str | None) -> str | None:
    """The coding that the client names alone. A list of several is every client's default, not a choice."""
    name = (accept_encoding or "").strip().lower()
    return name if name in CODINGS else None


def compressed(body: bytes, name: str | None) -> bytes:
    """The body in this coding; "deflate" is zlib's format, as in the protocol's clients."""
    if name == "gzip":
        return gzip.compress(body, LEVEL, mtime=0)
    return zlib.compress(body, LEVEL) if name == "deflate" else body
