"""What decoding an image file would cost beside its pixels, from its bytes, before a decoder sees them."""

import re
import struct

PNG, JPEG = b"\x89PNG\r\n\x1a\n", b"\xff\xd8"
# Chunks of a PNG that say nothing of its pixels as they are read here: texts and colour profiles, often compressed.
TEXTS = frozenset({b"tEXt", b"zTXt", b"iTXt", b"iCCP"})
# In a JPEG: the next marker that is no stuffed byte, restart or padding; and the markers without a length.
MARKER = re.compile(rb"\xff([^\x00\xd0-\xd7\xff])")
START_OF_SCAN, LONE_MARKERS = 0xDA, frozenset({0x01, 0xD8, 0xD9})
LENGTH = struct.Struct(">H")
CHUNK, CHECKSUM = struct.Struct(">I4s"), 4
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
    return data.startswith(PNG)


def without_texts(data: bytes) -> bytes:
    """A PNG without texts and profiles, whose size an image library bounds; any other file as it is."""
    if not data.startswith(PNG) or not any(kind in data for kind in TEXTS):
        return data
    kept, at = [PNG], len(PNG)
    while len(data) - at >= CHUNK.size:
        size, kind = CHUNK.unpack_from(data, at)
        end = at + CHUNK.size + size + CHECKSUM
        if kind not in TEXTS:
            kept.append(data[at:end])
        at = end
    return b"".join(kept)
