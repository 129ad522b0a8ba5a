"""What a client sent -> one float array (B, *input_shape), or a clear error. Knows nothing of HTTP."""

import base64
import binascii
import contextlib
import io
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageOps, UnidentifiedImageError

from service.bundle import ImagePreprocessing, InputSpec

Array = npt.NDArray[Any]
IMAGE_FORMATS = ("PNG", "JPEG")


class InputError(ValueError):
    """A value the network cannot take: which field, what was found, what was expected."""

    def __init__(self, field: str, found: str, expected: str) -> None:
        self.field, self.found, self.expected = field, found, expected
        super().__init__(f"{field}: found {found}, expected {expected}")


class InputTooLarge(InputError):
    """An input over one of the operator's limits."""


def array_from_json(values: Sequence[Any], spec: InputSpec, max_rows: int) -> Array:
    """Nested JSON lists, shape (B, *input_shape) or one example (*input_shape), as the network takes them."""
    if not values:
        raise InputError("inputs", "an empty list", "at least one example")
    try:
        array = np.array(values)
    except (ValueError, OverflowError):  # ragged lists, nesting beyond NumPy's dimensions, huge integers
        raise _not_an_array(values, spec) from None
    if array.dtype.kind not in ("iu" if spec.dtype == "int64" else "iuf"):
        raise _not_an_array(values, spec)
    batch = array[None] if array.shape == spec.shape else array
    if batch.shape[1:] != spec.shape or not len(batch):
        expected = f"(batch, {', '.join(map(str, spec.shape))})" if spec.shape else "(batch,)"
        raise InputError("inputs", f"shape {array.shape}", f"shape {expected}, or one example without the batch")
    check_rows("inputs", len(batch), max_rows)
    with np.errstate(over="ignore"):
        batch = batch.astype(spec.dtype)
    check_finite(batch)
    return batch


def _not_an_array(values: Sequence[Any], spec: InputSpec) -> InputError:
    kind = "integers" if spec.dtype == "int64" else "numbers"
    place, leaf = _first_odd_leaf(values, "inputs", integers=spec.dtype == "int64")
    found = "rows of different lengths" if place is None else f"{leaf!r:.60}"
    return InputError(place or "inputs", found, f"a full array of {kind}")


def _first_odd_leaf(value: Any, place: str, *, integers: bool) -> tuple[str | None, Any]:
    """Where the first entry stands that is no number, for the error message; (None, None) when all are."""
    stack = [(place, value)]
    while stack:
        where, item = stack.pop()
        if isinstance(item, list):
            stack.extend((f"{where}[{i}]", child) for i, child in reversed(list(enumerate(item))))
        elif isinstance(item, bool) or not isinstance(item, int if integers else (int, float)) or abs(item) > 2**1000:
            return where, item
    return None, None


def check_rows(field: str, rows: int, max_rows: int) -> None:
    """Refuse more examples than the operator allows in one request."""
    if rows > max_rows:
        raise InputTooLarge(field, f"{rows} examples", f"at most {max_rows} in one request")


def check_finite(batch: Array) -> None:
    """Refuse NaN and infinity (also numbers that overflow float32), naming the first place."""
    finite = np.isfinite(batch)
    if not finite.all():
        index = tuple(int(i) for i in np.argwhere(~finite)[0])
        place = "".join(f"[{i}]" for i in index)
        raise InputError(f"inputs{place}", f"{batch[index]}", "a finite number within float32's range")


def array_from_images(images: Sequence[str], spec: InputSpec, max_rows: int, max_pixels: int) -> Array:
    """Base64 PNG or JPEG files -> (B, C, H, W) float32, decoded and scaled as the input spec says."""
    if spec.image is None:
        raise InputError("images", "images", "'inputs': this model takes arrays, its bundle has no image input spec")
    if not images:
        raise InputError("images", "an empty list", "at least one image")
    check_rows("images", len(images), max_rows)
    return np.stack(
        [
            image_to_array(_decode_base64(text, f"images[{i}]"), spec, max_pixels, f"images[{i}]")
            for i, text in enumerate(images)
        ]
    )


def _decode_base64(text: str, field: str) -> bytes:
    if text.startswith("data:"):
        _, _, text = text.partition(",")
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise InputError(field, "text that is not base64", "a base64-encoded PNG or JPEG file") from error


def image_to_array(data: bytes, spec: InputSpec, max_pixels: int, field: str) -> Array:
    """One encoded image -> (C, H, W) float32: `(pixel * scale - mean) / std`.

    The size is read from the header and checked before a pixel is decoded. EXIF rotation is applied; an alpha
    channel is laid over black.
    """
    assert spec.image is not None
    _, height, width = spec.shape
    with _image_errors(field), Image.open(io.BytesIO(data), formats=IMAGE_FORMATS) as image:
        if image.width * image.height > max_pixels:
            raise InputTooLarge(field, f"{image.width} x {image.height} pixels", f"at most {max_pixels} pixels")
        picture = _convert(ImageOps.exif_transpose(image), spec.image)
        if picture.size != (width, height):
            if not spec.image.resize:
                raise InputError(
                    field, f"{picture.width} x {picture.height} pixels", f"{width} x {height} pixels (no resizing)"
                )
            picture = picture.resize((width, height), Image.Resampling.BILINEAR)
        pixels = np.asarray(picture, np.float32)
    return _normalise(pixels, spec.image)


@contextlib.contextmanager
def _image_errors(field: str) -> Any:
    """Every way in which Pillow rejects a file becomes one `InputError`."""
    expected = "a readable PNG or JPEG file"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)
            yield
    except InputError:
        raise
    except UnidentifiedImageError as error:
        raise InputError(field, "bytes that are not an image", expected) from error
    except Image.DecompressionBombError as error:
        raise InputTooLarge(field, "too many pixels", expected) from error
    except (OSError, ValueError, SyntaxError, EOFError, IndexError, MemoryError, TypeError, KeyError) as error:
        raise InputError(field, f"an image that cannot be decoded ({error})"[:200], expected) from error


def _convert(image: Image.Image, preprocessing: ImagePreprocessing) -> Image.Image:
    """To the input's colour space. 16-bit grey is scaled to 8 bits: Pillow alone would clip it."""
    if image.mode.startswith("I"):
        grey = np.asarray(image, np.float64) / 257.0
        image = Image.fromarray(np.clip(np.rint(grey), 0, 255).astype(np.uint8))
    if "A" in image.getbands() or "transparency" in image.info:
        layer = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", layer.size, (0, 0, 0, 255)), layer)
    return image.convert(preprocessing.mode)


def _normalise(pixels: Array, preprocessing: ImagePreprocessing) -> Array:
    channels_first = pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1)
    mean = np.asarray(preprocessing.mean, np.float32).reshape(-1, 1, 1)
    std = np.asarray(preprocessing.std, np.float32).reshape(-1, 1, 1)
    scaled: Array = (channels_first * np.float32(preprocessing.scale) - mean) / std
    return np.ascontiguousarray(scaled, np.float32)
