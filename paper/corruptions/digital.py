"""Digital changes: pixels (n, 32, 32, 3) in [0, 1] -> the same shape."""

import numpy as np
from numpy.random import Generator
from PIL import Image
from scipy import ndimage  # type: ignore[import-untyped]

from paper.corruptions.levels import SIDE, Array, of_level, per_image

CONTRAST = (0.75, 0.5, 0.4, 0.3, 0.15)
SATURATION = ((0.3, 0.0), (0.1, 0.0), (1.5, 0.0), (2.0, 0.1), (2.5, 0.2))  # factor and summand
PIXELATION = (0.95, 0.9, 0.85, 0.75, 0.65)  # side of the small image, in sides of the large one
# Amplitude and smoothness of the displacements, and displacement of the corners, in sides of the image.
ELASTIC = ((0.0, 0.0, 0.08), (0.05, 0.2, 0.07), (0.08, 0.06, 0.06), (0.1, 0.04, 0.05), (0.1, 0.03, 0.03))
CORNERS = np.array([[26.0, 26.0, 1.0], [26.0, 6.0, 1.0], [6.0, 6.0, 1.0]])  # x, y, 1


def contrast(pixels: Array, level: int, _: Generator) -> Array:
    """m + c (x - m), m the mean of each channel of the image."""
    mean: Array = pixels.mean((1, 2), keepdims=True)
    return mean + of_level(CONTRAST, level) * (pixels - mean)


def saturate(pixels: Array, level: int, _: Generator) -> Array:
    """Saturation S -> a S + b in HSV, hue and value kept; what is grey has the hue of red.

    x = V (1 - S t), with t = (V - x) / (V - least channel) in [0, 1].
    """
    factor, summand = of_level(SATURATION, level)
    value: Array = pixels.max(3, keepdims=True)
    spread: Array = value - pixels.min(3, keepdims=True)
    saturation = np.divide(spread, value, out=np.zeros_like(value), where=value > 0)
    grey = np.broadcast_to([0.0, 1.0, 1.0], pixels.shape).copy()
    depth = np.divide(value - pixels, spread, out=grey, where=spread > 0)
    changed: Array = value * (1 - np.clip(factor * saturation + summand, 0, 1) * depth)
    return changed


def pixelate(pixels: Array, level: int, _: Generator) -> Array:
    """Made smaller and large again, by means over boxes."""
    side = int(SIDE * of_level(PIXELATION, level))
    images = (Image.fromarray(image) for image in np.rint(pixels * 255).astype(np.uint8))
    small = (image.resize((side, side), Image.Resampling.BOX) for image in images)
    return np.stack([np.asarray(image.resize((SIDE, SIDE), Image.Resampling.BOX)) for image in small]) / 255


def elastic_transform(pixels: Array, level: int, rng: Generator) -> Array:
    """A random affine map that moves three corners, then smooth random displacements; bilinear, mirrored outside."""
    amplitude, smoothness, corners = (SIDE * share for share in of_level(ELASTIC, level))
    draws = per_image(rng, len(pixels), lambda child: child.uniform(-1, 1, 6 + 2 * SIDE * SIDE))
    moved = CORNERS[:, :2] + corners * draws[:, :6].reshape(-1, 3, 2)
    rows, columns = np.mgrid[:SIDE, :SIDE].astype(np.float64)
    back = np.linalg.solve(np.concatenate([moved, np.ones_like(moved[..., :1])], axis=2), CORNERS[:, :2])  # (n, 3, 2)
    x, y = np.moveaxis(np.stack([columns, rows, np.ones_like(rows)], axis=2) @ back[:, None], 3, 0)
    warped = _bilinear(pixels, _fold(y, SIDE - 1), _fold(x, SIDE - 1))
    fields = draws[:, 6:].reshape(-1, SIDE, SIDE, 2)
    right, down = np.moveaxis(
        amplitude * ndimage.gaussian_filter(fields, (0, smoothness, smoothness, 0), mode="reflect", truncate=3), 3, 0
    )
    return _bilinear(warped, *(_fold(place + 0.5, SIDE) - 0.5 for place in (rows + down, columns + right)))


def _fold(places: Array, length: int) -> Array:
    """Into [0, length], mirrored at both ends."""
    return length - np.abs(length - places % (2 * length))


def _bilinear(pixels: Array, rows: Array, columns: Array) -> Array:
    """Pixels (n, 32, 32, C) at places (n, 32, 32), interpolated; beyond the middle of an edge pixel, that pixel."""
    images = np.arange(len(pixels))[:, None, None]
    (top, down), (left, right) = (_parts(places) for places in (rows, columns))
    upper, lower = (
        (1 - right) * pixels[images, row, left] + right * pixels[images, row, left + 1] for row in (top, top + 1)
    )
    mixed: Array = (1 - down) * upper + down * lower
    return mixed


def _parts(places: Array) -> tuple[Array, Array]:
    """The pixel before a place, not the last one, and the weight (..., 1) of the pixel after it."""
    inside = np.clip(places, 0, SIDE - 1)
    before = np.minimum(inside.astype(np.intp), SIDE - 2)
    return before, (inside - before)[..., None]
