"""Estimate the cost of decoding an image file from its bytes, before a decoder sees them."""

import re
import struct

PNG, JPEG = b"\x89PNG\r\n\x1a\n", b"\xff\xd8"
# Chunks of a PNG with compressed data other than pixels: texts and colour profiles.
COMPRESSED_CHUNKS = frozenset({b"zTXt", b"iTXt", b"iCCP"})
# In a JPEG: the next marker that is no stuffed byte, restart or padding; and the markers without a length.
MARKER = re.compile(rb"\xff([^\x00\xd0-\xd7\xff])")
START_OF_SCAN, LONE_MARKERS = 0xDA, frozenset({0x01, 0xD8, 0xD9})
LENGTH = struct.Struct(">H")
CHUNK = struct.Struct(">I4s")
# A progressive JPEG has about ten scans; this many scans of a small image take no time.
CHEAP_SCANS = 16


def scans_of(jpeg: bytes) -> int:
    """The number of scans in a JPEG: each decodes all pixels once more, and may be ten bytes long."""
    scans, at = 0, 0
    while (found := MARKER.search(jpeg, at)) is not None:
        at = found.end()
        kind = found[1][0]
        if kind in LONE_MARKERS:
            continue
        scans += kind == START_OF_SCAN
        if len(jpeg) - at >= LENGTH.size:
            at += max(LENGTH.size, LENGTH.unpack_from(jpeg, at)[0])
    return scans


def is_cheap(data: bytes) -> bool:
    """Whether the pixels in the header alone bound the time of decoding."""
    if data.startswith(JPEG):
        return scans_of(data) <= CHEAP_SCANS
    return data.startswith(PNG) and not COMPRESSED_CHUNKS & _chunks_of(data)


def _chunks_of(png: bytes) -> set[bytes]:
    kinds, at = set[bytes](), len(PNG)
    while len(png) - at >= CHUNK.size:
        size, kind = CHUNK.unpack_from(png, at)
        kinds.add(kind)
        at += CHUNK.size + size + 4
    return kinds
