"""service/codec/images.py, bad images: each is an `InputError` that names the image, whatever Pillow makes of it."""

import base64
import random
import struct
import zlib

import numpy as np
import pytest
from PIL import Image

from demur.service.bundle import ImagePreprocessing, InputSpec
from demur.service.codec.arrays import InputError, InputLimits
from demur.service.codec.images import array_from_files, array_from_images, image_to_array
from tests.support.bundles import FEATURE_SPEC
from tests.support.client import base64_text, encoded

SPEC = InputSpec(shape=(3, 6, 6), image=ImagePreprocessing(mode="RGB"))
LIMITS = InputLimits(5, 1000)
PICTURE = Image.fromarray(np.random.default_rng(0).integers(0, 256, (9, 7, 3)).astype(np.uint8))
PNG, JPEG = encoded(PICTURE), encoded(PICTURE, "JPEG")

# What Pillow has to say about a picture must not reach the log; the tests of the running server show that.
WARNINGS_ASIDE = pytest.mark.filterwarnings("ignore::UserWarning:PIL")


def with_exif(exif: bytes) -> bytes:
    return encoded(PICTURE, "JPEG", exif=b"Exif\0\0" + exif)


def tiff_entry(tag: int, kind: int, count: int, value: bytes) -> bytes:
    """A TIFF block, as EXIF uses it, with one entry."""
    return struct.pack(">2sHIHHHI4sI", b"MM", 42, 8, 1, tag, kind, count, value, 0)


ORIENTATION, SHORT, ASCII, DOUBLE, RATIONAL = 0x0112, 3, 2, 12, 5
NOT_PICTURES: dict[str, bytes] = {
    "empty": b"",
    "text": b"hello",
    "zeros": bytes(1000),
    "half a PNG": PNG[: len(PNG) // 2],
    "half a JPEG": JPEG[: len(JPEG) // 2],
    "a PNG's signature": PNG[:8],
    "a PNG's header": PNG[:33],
    "wrong checksum": PNG[:40] + bytes([PNG[40] ^ 1]) + PNG[41:],
    "GIF": encoded(PICTURE, "GIF"),
    "BMP": encoded(PICTURE, "BMP"),
    "TIFF": encoded(PICTURE, "TIFF"),
    "SVG": b"<svg xmlns='http://www.w3.org/2000/svg'/>",
    "no pixels": b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + b"IHDR" + bytes(13) + struct.pack(">I", 0),
}


@pytest.mark.parametrize("case", NOT_PICTURES)
def test_what_is_no_picture_is_refused(case: str) -> None:
    with pytest.raises(InputError) as caught:
        array_from_images([base64_text(PNG), base64_text(NOT_PICTURES[case])], SPEC, InputLimits(5, 1000))
    assert caught.value.field == "images[1]"
    assert caught.value.found
    assert caught.value.expected == "a readable PNG, JPEG or WebP file"
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize(
    "text", ["!", "a", "é", "aGVs bG8=", "aGVsbG8", "\n", "data:image/png;base64,!", "data:", "-_-_"]
)
def test_what_is_not_base64_is_refused(text: str) -> None:
    with pytest.raises(InputError, match=r"images\[0\]"):
        array_from_images([text], SPEC, InputLimits(5, 1000))


def test_no_pictures_and_pictures_for_a_model_of_numbers() -> None:
    with pytest.raises(InputError, match="images: found an empty list"):
        array_from_images([], SPEC, InputLimits(5, 1000))
    with pytest.raises(InputError, match="images: found images, expected 'inputs'"):
        array_from_images([base64_text(PNG)], FEATURE_SPEC, InputLimits(5, 1000))


ODD_EXIF: dict[str, bytes] = {
    "orientation 99": tiff_entry(ORIENTATION, SHORT, 1, b"\0\x63\0\0"),
    "orientation as text": tiff_entry(ORIENTATION, ASCII, 2, b"6\0\0\0"),
    "orientation six times": tiff_entry(ORIENTATION, SHORT, 2, b"\0\6\0\6"),
    "orientation as a far number": tiff_entry(ORIENTATION, DOUBLE, 1, b"\0\0\xff\xff"),
    "orientation as a fraction": tiff_entry(ORIENTATION, RATIONAL, 1, b"\0\0\xff\xff"),
    "another field of the wrong type": struct.pack(
        ">2sHIHHHI4sHHI4sI", b"MM", 42, 8, 2, ORIENTATION, SHORT, 1, b"\0\6\0\0", 0x0152, ASCII, 2, b"x\0\0\0", 0
    ),
    "data beyond the end": tiff_entry(0x010E, ASCII, 2**31, b"\0\0\0\x40"),
    "cut": tiff_entry(ORIENTATION, SHORT, 1, b"\0\6\0\0")[:14],
    "nothing": b"",
    "no TIFF": b"hello, world",
}


@WARNINGS_ASIDE
@pytest.mark.parametrize("case", ODD_EXIF)
def test_odd_metadata_is_decoded_or_refused(case: str) -> None:
    try:
        found = image_to_array(with_exif(ODD_EXIF[case]), SPEC, 1000, "images[0]")
    except InputError as error:
        found, message = None, str(error)
    assert (found is not None and found.shape == SPEC.shape) or "images[0]" in message


def repaired(png: bytes) -> bytes:
    """The same PNG with right checksums, so that damage reaches the decoder."""
    out, at = bytearray(png[:8]), 8
    while at + 12 <= len(png):
        (length,) = struct.unpack(">I", png[at : at + 4])
        if at + 12 + length > len(png):
            break
        chunk = png[at + 4 : at + 8 + length]
        out += png[at : at + 4] + chunk + struct.pack(">I", zlib.crc32(chunk))
        at += 12 + length
    return bytes(out + png[at:])


def damaged(data: bytes, dice: random.Random) -> bytes:
    """A few bytes changed, dropped or added, mostly near the beginning."""
    broken = bytearray(data)
    for _ in range(dice.choice([1, 1, 2, 4])):
        at = dice.randrange(min(len(broken), dice.choice([150, len(broken)])))
        what = dice.random()
        if what < 0.8:
            broken[at] = dice.randrange(256)
        elif what < 0.9:
            del broken[at : at + dice.randrange(1, 8)]
        else:
            broken[at:at] = dice.randbytes(dice.randrange(1, 8))
    changed = bytes(broken)
    return repaired(changed) if changed.startswith(b"\x89PNG\r\n\x1a\n") and dice.random() < 0.8 else changed


@WARNINGS_ASIDE
@pytest.mark.parametrize("seed", range(4))
def test_damaged_pictures_are_decoded_or_refused(seed: int) -> None:
    exif = with_exif(ODD_EXIF["another field of the wrong type"])
    grey16 = np.random.default_rng(1).integers(0, 65536, (6, 6)).astype(np.uint16)
    sound = [
        PNG,
        JPEG,
        exif,
        encoded(PICTURE.convert("P"), transparency=3),
        encoded(PICTURE.convert("LA")),
        encoded(Image.fromarray(grey16)),
        encoded(PICTURE, save_all=True, append_images=[PICTURE.rotate(90)]),
        encoded(PICTURE.convert("CMYK"), "JPEG"),
        encoded(PICTURE, "JPEG", progressive=True),
    ]
    dice = random.Random(seed)
    outcomes = {"decoded": 0, "refused": 0}
    for _ in range(700):
        data = damaged(dice.choice(sound), dice)
        try:
            found = image_to_array(data, SPEC, 10_000, "images[0]")
        except InputError:
            outcomes["refused"] += 1
            continue
        outcomes["decoded"] += 1
        assert found.shape == SPEC.shape
        assert np.isfinite(found).all()
    assert min(outcomes.values()) > 20


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (encoded(Image.new("L", (3, 3)), "GIF"), "a GIF file"),
        (encoded(Image.new("L", (3, 3)), "TIFF"), "a TIFF file"),
        (encoded(Image.new("L", (3, 3)), "BMP"), "a BMP file"),
        (b"\0\0\0\x18ftypheic\0\0\0\0mif1heic", "a HEIC file"),
        (b"\0\0\0\x18ftypavif\0\0\0\0avifmif1", "an AVIF file"),
        (b"%PDF-1.7", "a PDF file"),
        (b'<?xml version="1.0"?><svg/>', "an SVG file"),
        (b"hello", "bytes that are not an image"),
    ],
)
def test_files_that_are_taken_for_images_are_named(data: bytes, found: str) -> None:
    with pytest.raises(InputError, match=f"found {found}, expected a readable PNG, JPEG or WebP file"):
        array_from_files([data], SPEC, LIMITS)


@pytest.mark.parametrize("change", ["lines", "unpadded", "url", "padded lines"])
def test_base64_comes_in_lines_and_without_padding_too(change: str) -> None:
    data = next(data for size in range(3, 9) if len(data := encoded(Image.new("L", (size, 3)))) % 3)
    text = base64.b64encode(data).decode()
    lines = "\r\n".join(text[at : at + 76] for at in range(0, len(text), 76))
    forms = {
        "lines": lines.rstrip("="),
        "unpadded": text.rstrip("="),
        "url": f"Data:image/png;base64,{text}",
        "padded lines": lines + "\n",
    }
    found, expected = (array_from_images([one], SPEC, LIMITS) for one in (forms[change], text))
    np.testing.assert_array_equal(found, expected)
