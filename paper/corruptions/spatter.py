"""Spatter: water (levels 1 to 3) or mud (4 and 5) on the lens; pixels (n, 32, 32, 3) in [0, 1] -> the same shape."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from numpy.random import Generator
from scipy import ndimage  # type: ignore[import-untyped]

from paper.corruptions.blur import gaussian
from paper.corruptions.levels import SIDE, Array, of_level, per_image

Mask = npt.NDArray[np.bool_]


class Spatter(NamedTuple):
    """Random thickness, smoothed; what is above `threshold` is wet."""

    mean: float
    deviation: float
    smoothness: float  # pixels
    threshold: float
    strength: float  # of the water, or smoothness of the mud in pixels


LEVELS = (
    Spatter(0.62, 0.1, 0.7, 0.7, 0.5),
    Spatter(0.65, 0.1, 0.8, 0.7, 0.5),
    Spatter(0.65, 0.3, 1.0, 0.69, 0.5),
    Spatter(0.65, 0.1, 0.7, 0.69, 0.6),
    Spatter(0.65, 0.1, 0.5, 0.68, 0.6),
)
FIRST_OF_MUD = 4
WATER, MUD = np.array([175, 238, 238]) / 255, np.array([63, 42, 20]) / 255  # pale turquoise; brown
LEAST_MUD = 0.8
WEAK_EDGE, STRONG_EDGE = 50, 150  # of the Canny detector, in units of the Sobel filter on bytes
FARTHEST = 20.0  # pixels
ROUNDING = 1e-6  # so that the mean of equal whole numbers is that number
EMBOSS = np.array([[-2, -1, 0], [-1, 1, 1], [0, 1, 2]])


def spatter(pixels: Array, level: int, rng: Generator) -> Array:
    """Drops of random thickness; water shines by its distance from the edges of the drops, mud covers."""
    constants = of_level(LEVELS, level)
    draws = per_image(rng, len(pixels), lambda child: child.standard_normal((SIDE, SIDE)))
    thickness = gaussian(constants.mean + constants.deviation * draws, constants.smoothness)
    wet = np.where(thickness < constants.threshold, 0, thickness)
    if level < FIRST_OF_MUD:
        return pixels + constants.strength * _shine(np.floor(wet * 255))[..., None] * WATER
    cover = gaussian((wet > constants.threshold).astype(np.float64), constants.strength)
    cover = np.where(cover < LEAST_MUD, 0, cover)[..., None]
    return pixels * (1 - cover) + cover * MUD


def _shine(thickness: Array) -> Array:
    """Thickness times the embossed, equalised distance from edges; largest value 1, or 0 where all is dry."""
    distance = np.stack([_distance(edges) for edges in _edges(thickness)])
    near = np.floor(_mean(np.minimum(distance, FARTHEST)) + ROUNDING).astype(np.uint8)
    even = np.stack([_equalised(image) for image in near])
    embossed = np.clip(ndimage.correlate(even, EMBOSS[None], mode="mirror"), 0, 255)
    light = thickness * np.rint(_mean(embossed))
    largest: Array = light.max((1, 2), keepdims=True)
    return np.divide(light, largest, out=np.zeros_like(light), where=largest > 0)


def _mean(values: Array) -> Array:
    """Of 3 x 3 pixels."""
    averaged: Array = ndimage.uniform_filter(values, (1, 3, 3), mode="mirror")
    return averaged


def _edges(values: Array) -> Mask:
    """Canny's edges (n, s, s) of values in [0, 255]: strong ridges of the gradient, and weak ones joined to them."""
    down, right = (_sobel(values, axis) for axis in (1, 2))
    size = np.abs(down) + np.abs(right)
    ridge = _ridge(size, down, right)
    neighbours = np.ones((1, 3, 3), bool)  # not from image to image
    weak, strong = ridge & (size > WEAK_EDGE), ridge & (size > STRONG_EDGE)
    edges: Mask = ndimage.binary_propagation(strong, neighbours, weak)
    return edges


def _sobel(values: Array, axis: int) -> Array:
    """Derivative along an axis, smoothed along the other one of the image."""
    slope = ndimage.correlate1d(values, [-1, 0, 1], axis, mode="nearest")
    smooth: Array = ndimage.correlate1d(slope, [1, 2, 1], 3 - axis, mode="nearest")
    return smooth


def _ridge(size: Array, down: Array, right: Array) -> Mask:
    """Where the gradient is no smaller than at both neighbours in its direction, one of four."""
    steep = np.abs(down) / np.maximum(np.abs(right), 1e-9)
    level, upright = steep < np.tan(np.pi / 8), steep > np.tan(3 * np.pi / 8)
    falling = ~level & ~upright & (down * right >= 0)
    rising = ~level & ~upright & ~falling
    padded = np.pad(size, ((0, 0), (1, 1), (1, 1)))

    def at(rows: int, columns: int) -> Array:
        return padded[:, 1 + rows : 1 + rows + SIDE, 1 + columns : 1 + columns + SIDE]

    ridge: Mask = (
        (level & (size > at(0, -1)) & (size >= at(0, 1)))
        | (upright & (size > at(-1, 0)) & (size >= at(1, 0)))
        | (falling & (size > at(-1, -1)) & (size > at(1, 1)))
        | (rising & (size > at(-1, 1)) & (size > at(1, -1)))
    )
    return ridge


def _distance(edges: Mask) -> Array:
    """Of each pixel from the nearest edge, in pixels; without an edge, the farthest that counts."""
    if not edges.any():
        return np.full(edges.shape, FARTHEST)
    away: Array = ndimage.distance_transform_edt(~edges)
    return away


def _equalised(image: npt.NDArray[np.uint8]) -> Array:
    """Bytes spread so that their cumulative histogram is straight; the least value becomes 0."""
    counts = np.bincount(image.ravel(), minlength=256)
    below = np.cumsum(counts) - counts[image.min()]
    spread: Array = np.rint(255 * below / below[-1]) if below[-1] else np.arange(256.0)
    return spread[image]
