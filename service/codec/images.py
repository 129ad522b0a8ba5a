"""Image files that a client sent -> one array (B, C, H, W) as the input spec says, or an error that names the file."""

import base64
import binascii
import contextlib
import io
import re
import warnings
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from ..format.manifest_input import ImagePreprocessing, InputSpec
from .arrays import Array, InputError, InputLimits, InputTooLarge, check_rows
from .image_cost import JPEG, scans_of, without_texts

IMAGE_FORMATS = ("PNG", "JPEG", "WEBP")
IMAGE_NAMES = "PNG, JPEG or WebP"
# Each row of pixels takes some memory whatever its width: a column of 16 million pixels would take 700 MiB. JPEG and
# WebP have fewer rows than this.
MAX_PIXEL_ROWS = 2**16
# More than any encoder writes; thousands of scans would take minutes.
MAX_SCANS = 100


def array_from_images(images: Sequence[str], spec: InputSpec, limits: InputLimits, field: str = "images") -> Array:
    """Base64 image files -> (B, C, H, W) float32, decoded and scaled as the input spec says."""
    check_images(field, len(images), spec, limits.rows(spec))
    files = (decode_base64(text, f"{field}[{i}]") for i, text in enumerate(images))
    return _stack_images(files, len(images), spec, limits, field)


def array_from_files(files: Sequence[bytes], spec: InputSpec, limits: InputLimits, field: str = "files") -> Array:
    """Image files -> (B, C, H, W) float32, decoded and scaled as the input spec says."""
    check_images(field, len(files), spec, limits.rows(spec))
    return _stack_images(files, len(files), spec, limits, field)


def check_images(field: str, count: int, spec: InputSpec, max_rows: int) -> None:
    """Refuse images for a model that takes arrays, an empty list, and too many images."""
    if spec.image is None:
        raise InputError(
            field,
            "images",
            "'inputs': this model takes arrays; one that takes images is fitted with an "
            "input_spec=InputSpec(shape=..., image=ImagePreprocessing())",
        )
    if not count:
        raise InputError(field, "an empty list", "at least one image")
    check_rows(field, count, max_rows)


def _stack_images(files: Iterable[bytes], count: int, spec: InputSpec, limits: InputLimits, field: str) -> Array:
    stack = np.empty((count, *spec.shape), np.float32)
    left = limits.max_total_pixels
    for i, data in enumerate(files):
        place = f"{field}[{i}]"
        with _opened(data, limits.max_pixels, place) as image:
            pixels = image.width * image.height
            if pixels > left:
                expected = f"at most {limits.max_total_pixels} in all images of a request"
                raise InputTooLarge(place, f"{pixels} pixels after those before it", expected)
            left -= pixels
            stack[i] = _array_of(image, spec, place)
    return stack


def decode_base64(text: str, field: str) -> bytes:
    """The file in a base64 text, with or without line breaks and padding, or in a `data:` URL; raises `InputError`."""
    if text[:5].lower() == "data:":
        _, _, text = text.partition(",")
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        pass
    text = "".join(text.split()).rstrip("=")
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except (binascii.Error, ValueError) as error:
        raise InputError(field, "text that is not base64", f"a base64-encoded {IMAGE_NAMES} file") from error


def image_to_array(data: bytes, spec: InputSpec, max_pixels: int, field: str) -> Array:
    """One encoded image -> (C, H, W) float32: `(pixel * scale - mean) / std`.

    The size is read from the header and checked before a pixel is decoded. EXIF rotation is applied, colour profiles
    are not; an alpha channel is laid over black.
    """
    with _opened(data, max_pixels, field) as image:
        return _array_of(image, spec, field)


# How other files begin that people take for images.
KINDS = (
    (re.compile(rb"GIF8"), "a GIF"),
    (re.compile(rb"II\*\0|MM\0\*"), "a TIFF"),
    (re.compile(rb"(?s)....ftyp(hei|mif1|msf1)"), "a HEIC"),
    (re.compile(rb"(?s)....ftypavi"), "an AVIF"),
    (re.compile(rb"BM"), "a BMP"),
    (re.compile(rb"%PDF"), "a PDF"),
    (re.compile(rb"\s*<(\?xml|svg)"), "an SVG"),
)


def _kind_of(data: bytes) -> str:
    """What the bytes are instead of an image that is read."""
    return next((f"{name} file" for pattern, name in KINDS if pattern.match(data)), "bytes that are not an image")


@contextlib.contextmanager
def _opened(data: bytes, max_pixels: int, field: str) -> Iterator[Image.Image]:
    file = io.BytesIO(without_texts(data))
    with _image_errors(data, max_pixels, field), Image.open(file, formats=IMAGE_FORMATS) as image:
        _check_size(image, max_pixels, field)
        if data.startswith(JPEG) and (scans := scans_of(data)) > MAX_SCANS:
            raise InputTooLarge(field, f"a JPEG of {scans} scans", f"at most {MAX_SCANS}")
        yield image


def _check_size(image: Image.Image, max_pixels: int, field: str) -> None:
    found = f"{image.width} x {image.height} pixels"
    if image.width * image.height > max_pixels:
        raise InputTooLarge(field, found, f"at most {max_pixels} pixels")
    if image.height > MAX_PIXEL_ROWS:
        raise InputTooLarge(field, found, f"at most {MAX_PIXEL_ROWS} rows")


def _array_of(image: Image.Image, spec: InputSpec, field: str) -> Array:
    assert spec.image is not None
    _, height, width = spec.shape
    with contextlib.suppress(SyntaxError):  # what is no EXIF says nothing of the orientation, in a JPEG neither
        ImageOps.exif_transpose(image, in_place=True)
    picture = _convert(image, spec.image)
    if picture.size != (width, height) and not spec.image.resize:
        raise InputError(
            field, f"{picture.width} x {picture.height} pixels", f"{width} x {height} pixels (no resizing)"
        )
    picture = _resized(picture, (width, height), spec.image)
    return _normalise(np.asarray(picture, np.float32), spec.image)


def _resized(picture: Image.Image, size: tuple[int, int], image: ImagePreprocessing) -> Image.Image:
    """The size (width, height), after `resize_to` and a cut of the middle, if there are any.

    Only what is cut out is computed: the rest of an image that is much longer than wide would take gigabytes.
    """
    whole = picture.size
    between = size if image.resize_to is None else _size_between(whole, image.resize_to)
    if size == whole == between:
        return picture
    (left, right), (upper, lower) = (
        (start * length / longer, (start + own) * length / longer)
        for start, own, length, longer in (
            (round((longer - own) / 2), own, length, longer)
            for own, length, longer in zip(size, whole, between, strict=True)
        )
    )
    filters = Image.Resampling
    chosen = filters.BILINEAR if image.interpolation is None else filters[image.interpolation.upper()]
    return picture.resize(size, chosen, (left, upper, right, lower))


def _size_between(whole: tuple[int, int], resize_to: tuple[int, ...]) -> tuple[int, int]:
    """Width and height before the cut, rounded as torchvision does."""
    if len(resize_to) == 2:
        return resize_to[1], resize_to[0]
    (shorter,) = resize_to
    width, height = whole
    if width <= height:
        return shorter, shorter * height // width
    return shorter * width // height, shorter


@contextlib.contextmanager
def _image_errors(data: bytes, max_pixels: int, field: str) -> Iterator[None]:
    """Report any exception of Pillow as the file's fault: its decoders raise nearly every kind."""
    expected = f"a readable {IMAGE_NAMES} file"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except InputError:
        raise
    except UnidentifiedImageError as error:
        raise InputError(field, _kind_of(data), expected) from error
    except Image.DecompressionBombError as error:
        raise InputTooLarge(field, "too many pixels", f"at most {max_pixels} pixels") from error
    except MemoryError:
        raise InputTooLarge(field, "an image that takes more memory than is allowed", "fewer pixels") from None
    except Exception as error:
        reason = " ".join(str(error).split())[:150]
        raise InputError(field, f"an image that cannot be decoded ({reason})", expected) from error


def _convert(image: Image.Image, preprocessing: ImagePreprocessing) -> Image.Image:
    """To the input's colour space. 16-bit grey is scaled to 8 bits: Pillow alone would clip it."""
    if image.mode.startswith("I"):
        grey = np.array(image, np.float32)
        grey /= 257  # no quotient ends in .5, so float32 rounds like float64
        image = Image.fromarray(np.clip(np.rint(grey, out=grey), 0, 255, out=grey).astype(np.uint8))
    if "A" in image.getbands() or "transparency" in image.info:
        layer = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", layer.size, (0, 0, 0, 255)), layer)
    return image if image.mode == preprocessing.mode else image.convert(preprocessing.mode)


def _normalise(pixels: Array, preprocessing: ImagePreprocessing) -> Array:
    channels_first = pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1)
    mean = np.asarray(preprocessing.mean, np.float32).reshape(-1, 1, 1)
    std = np.asarray(preprocessing.std, np.float32).reshape(-1, 1, 1)
    with np.errstate(over="ignore", invalid="ignore"):
        scaled: Array = (channels_first * np.float32(preprocessing.scale) - mean) / std
    return np.ascontiguousarray(scaled, np.float32)
