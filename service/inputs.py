"""What a client sent -> one float array (B, *input_shape), or a clear error. Knows nothing of HTTP."""

import base64
import binascii
import contextlib
import io
import math
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageOps, UnidentifiedImageError

from service.format.manifest_input import ImagePreprocessing, InputSpec
from service.image_cost import JPEG, scans_of

Array = npt.NDArray[Any]
IMAGE_FORMATS = ("PNG", "JPEG", "WEBP")
IMAGE_NAMES = "PNG, JPEG or WebP"
MAX_DEPTH = 32  # NumPy itself ends at 64
LONGEST_BITS = 10_000  # Python refuses to write longer integers in decimal
# A row of pixels takes some memory whatever its width: a column of 16 million pixels would take 700 MiB. JPEG and WebP
# end below this number.
MOST_ROWS = 2**16
# Beyond what any encoder makes; thousands of scans would take minutes.
MOST_SCANS = 100


class InputError(ValueError):
    """A value the network cannot take: which field, what was found, what was expected."""

    def __init__(self, field: str, found: str, expected: str) -> None:
        self.field, self.found, self.expected = field, found, expected
        super().__init__(f"{field}: found {found}, expected {expected}")

    def __reduce__(self) -> tuple[type["InputError"], tuple[str, str, str]]:
        return type(self), (self.field, self.found, self.expected)


class InputTooLarge(InputError):
    """An input over one of the operator's limits."""


@dataclass(frozen=True)
class InputLimits:
    """Of one request: examples, pixels of one image and of all, bytes as the network takes them."""

    max_rows: int
    max_pixels: int
    max_total_pixels: int = 64 * 2**20
    max_bytes: int = 64 * 2**20

    def rows(self, spec: InputSpec) -> int:
        """Most examples of this kind: as many as may be asked for and fit into the memory, at least one."""
        size = np.dtype(spec.dtype).itemsize * math.prod(spec.shape)
        return max(1, min(self.max_rows, self.max_bytes // max(1, size)))


def array_from_json(values: Sequence[Any], spec: InputSpec, max_rows: int) -> Array:
    """Nested JSON lists, shape (B, *input_shape) or one example (*input_shape), as the network takes them.

    Every entry's type is looked at before NumPy sees it: NumPy would take true for 1 and make room for the longest
    of mixed texts at every place.
    """
    if not values:
        raise InputError("inputs", "an empty list", "at least one example")
    if isinstance(values[0], list):
        check_rows("inputs", len(values), max(max_rows, *spec.shape[:1], 1))  # before each row is looked at
    integers = spec.dtype == "int64"
    _check_entries(values, "inputs", {int} if integers else {int, float}, MAX_DEPTH)
    try:
        array = np.array(values, np.int64 if integers else np.float64)
    except OverflowError:
        raise _too_large(values, integers) from None
    except ValueError:
        raise InputError("inputs", "rows of different lengths", "a full array") from None
    return array_from_array(array, spec, max_rows)


def array_from_array(array: Array, spec: InputSpec, max_rows: int, field: str = "inputs") -> Array:
    """An array (B, *input_shape), or one example (*input_shape), of numbers that the input's dtype can hold."""
    kinds = "iu" if spec.dtype == "int64" else "iuf"
    if array.dtype.kind not in kinds:
        expected = "whole numbers" if spec.dtype == "int64" else "whole or floating-point numbers"
        raise InputError(field, f"an array of {array.dtype}", expected)
    batch = array[None] if array.shape == spec.shape else array
    if batch.shape[1:] != spec.shape or not len(batch):
        expected = f"(batch, {', '.join(map(str, spec.shape))})" if spec.shape else "(batch,)"
        raise InputError(field, f"shape {array.shape}", f"shape {expected}, or one example without the batch")
    check_rows(field, len(batch), max_rows)
    if array.dtype.kind == "u" and spec.dtype == "int64" and (batch > np.uint64(2**63 - 1)).any():
        raise InputError(field, f"{batch.max()}", "numbers that fit int64")
    with np.errstate(over="ignore"):
        batch = np.ascontiguousarray(batch.astype(spec.dtype, copy=False))
    check_finite(batch, field)
    return batch


def _check_entries(values: Sequence[Any], place: str, allowed: set[type], depth: int) -> None:
    """Refuse anything but numbers in lists up to `depth` deep, naming the first place."""
    kinds = set(map(type, values))
    if kinds <= allowed:
        return
    if kinds == {list}:
        if depth <= 1:
            raise InputError(place, "lists nested too deep", "a number")
        for i, row in enumerate(values):
            _check_entries(row, f"{place}[{i}]", allowed, depth - 1)
        return
    if list in kinds and kinds - {list} <= allowed:
        raise InputError(place, "rows of different lengths", "a full array")
    i, odd = next((i, value) for i, value in enumerate(values) if type(value) not in allowed | {list})
    what = "a whole number" if allowed == {int} else "a number"
    raise InputError(f"{place}[{i}]", f"{odd!r:.60}", what)


def _too_large(values: Sequence[Any], integers: bool) -> InputError:
    """Where the number stands that no float64 (or int64) can hold."""
    limit = 2**63 if integers else 2**1023
    stack: list[tuple[str, Any]] = [("inputs", values)]
    while stack:
        place, item = stack.pop()
        if isinstance(item, list):
            stack.extend((f"{place}[{i}]", child) for i, child in reversed(list(enumerate(item))))
        elif isinstance(item, int) and not -limit <= item < limit:
            found = f"{item!r:.60}" if item.bit_length() < LONGEST_BITS else "a huge whole number"
            return InputError(place, found, "a number that fits 64 bits")
    return InputError("inputs", "a number that is too large", "numbers that fit 64 bits")


def check_rows(field: str, rows: int, max_rows: int) -> None:
    """Refuse more examples than the operator allows in one request."""
    if rows > max_rows:
        raise InputTooLarge(field, f"{rows} examples", f"at most {max_rows} in one request")


def check_finite(batch: Array, field: str = "inputs") -> None:
    """Refuse NaN and infinity (also numbers that overflow float32), naming the first place."""
    finite = np.isfinite(batch)
    if not finite.all():
        index = tuple(int(i) for i in np.argwhere(~finite)[0])
        place = "".join(f"[{i}]" for i in index)
        raise InputError(f"{field}{place}", f"{batch[index]}", "a finite number within float32's range")


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
    """Refuse images where the model takes arrays, none, and too many."""
    if spec.image is None:
        raise InputError(field, "images", "'inputs': this model takes arrays, its bundle has no image input spec")
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
                raise InputTooLarge(place, f"{pixels} pixels beside those before it", expected)
            left -= pixels
            stack[i] = _array_of(image, spec, place)
    return stack


def decode_base64(text: str, field: str) -> bytes:
    """The file in a base64 text, or in a `data:` URL; raises `InputError`."""
    if text.startswith("data:"):
        _, _, text = text.partition(",")
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise InputError(field, "text that is not base64", f"a base64-encoded {IMAGE_NAMES} file") from error


def image_to_array(data: bytes, spec: InputSpec, max_pixels: int, field: str) -> Array:
    """One encoded image -> (C, H, W) float32: `(pixel * scale - mean) / std`.

    The size is read from the header and checked before a pixel is decoded. EXIF rotation is applied; an alpha
    channel is laid over black.
    """
    with _opened(data, max_pixels, field) as image:
        return _array_of(image, spec, field)


@contextlib.contextmanager
def _opened(data: bytes, max_pixels: int, field: str) -> Iterator[Image.Image]:
    with _image_errors(field), Image.open(io.BytesIO(data), formats=IMAGE_FORMATS) as image:
        _check_size(image, max_pixels, field)
        if data.startswith(JPEG) and (scans := scans_of(data)) > MOST_SCANS:
            raise InputTooLarge(field, f"a JPEG of {scans} scans", f"at most {MOST_SCANS}")
        yield image


def _check_size(image: Image.Image, max_pixels: int, field: str) -> None:
    found = f"{image.width} x {image.height} pixels"
    if image.width * image.height > max_pixels:
        raise InputTooLarge(field, found, f"at most {max_pixels} pixels")
    if image.height > MOST_ROWS:
        raise InputTooLarge(field, found, f"at most {MOST_ROWS} rows")


def _array_of(image: Image.Image, spec: InputSpec, field: str) -> Array:
    assert spec.image is not None
    _, height, width = spec.shape
    ImageOps.exif_transpose(image, in_place=True)
    picture = _convert(image, spec.image)
    if picture.size != (width, height):
        if not spec.image.resize:
            raise InputError(
                field, f"{picture.width} x {picture.height} pixels", f"{width} x {height} pixels (no resizing)"
            )
        picture = picture.resize((width, height), Image.Resampling.BILINEAR)
    return _normalise(np.asarray(picture, np.float32), spec.image)


@contextlib.contextmanager
def _image_errors(field: str) -> Iterator[None]:
    """Whatever goes wrong inside Pillow is the file's fault: its decoders raise nearly every kind of exception."""
    expected = f"a readable {IMAGE_NAMES} file"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except InputError:
        raise
    except UnidentifiedImageError as error:
        raise InputError(field, "bytes that are not an image", expected) from error
    except Image.DecompressionBombError as error:
        raise InputTooLarge(field, "too many pixels", expected) from error
    except MemoryError:
        raise InputTooLarge(field, "an image that takes more memory than one may", "fewer pixels") from None
    except Exception as error:
        reason = " ".join(str(error).split())[:150]
        raise InputError(field, f"an image that cannot be decoded ({reason})", expected) from error


def _convert(image: Image.Image, preprocessing: ImagePreprocessing) -> Image.Image:
    """To the input's colour space. 16-bit grey is scaled to 8 bits: Pillow alone would clip it."""
    if image.mode.startswith("I"):
        grey = np.array(image, np.float32)
        grey /= 257  # no whole number comes to a half, so that float32 rounds as float64 does
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
