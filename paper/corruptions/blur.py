"""Blur: pixels (n, 32, 32, 3) in [0, 1] -> the same shape."""

from typing import cast

import numpy as np
from numpy.random import Generator
from scipy import ndimage  # type: ignore[import-untyped]

from paper.corruptions.levels import SIDE, Array, of_level, per_image

GAUSSIAN = (0.4, 0.6, 0.7, 0.8, 1.0)  # standard deviation, pixels
DEFOCUS = ((0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1.0, 0.2), (1.5, 0.1))  # radius and antialiasing, pixels
GLASS = ((0.05, 1), (0.25, 1), (0.4, 1), (0.25, 2), (0.4, 2))  # standard deviation of the blur; rounds of displacement
LARGEST_ZOOM = (1.06, 1.11, 1.16, 1.21, 1.26)
ZOOM_STEP = 0.01


def gaussian(values: Array, sigma: float) -> Array:
    """Gaussian blur of the axes 1 and 2, the edge repeated outside; sigma in pixels."""
    kept = (0.0,) * (values.ndim - 3)
    return cast(Array, ndimage.gaussian_filter(values, (0.0, sigma, sigma, *kept), mode="nearest"))


def gaussian_blur(pixels: Array, level: int, _: Generator) -> Array:
    """Convolution with a Gaussian."""
    return gaussian(pixels, of_level(GAUSSIAN, level))


def defocus_blur(pixels: Array, level: int, _: Generator) -> Array:
    """Convolution with a disc, mirrored outside."""
    radius, soft = of_level(DEFOCUS, level)
    kernel = _disc(radius, soft)
    return cast(Array, ndimage.correlate(pixels, kernel[None, :, :, None], mode="mirror"))


def _disc(radius: float, soft: float) -> Array:
    """A disc with sum 1, blurred by a Gaussian of 3 x 3 pixels: (2 r + 3, 2 r + 3), r the radius rounded down."""
    reach = int(radius) + 1
    offsets = np.arange(-reach, reach + 1)
    disc = (offsets[:, None] ** 2 + offsets**2 <= radius**2).astype(np.float64)
    profile = np.exp(-(np.arange(-1, 2) ** 2) / (2 * soft**2))
    edge = np.outer(profile, profile)
    return cast(Array, ndimage.convolve(disc / disc.sum(), edge / edge.sum(), mode="constant"))


def glass_blur(pixels: Array, level: int, rng: Generator) -> Array:
    """Blurred, each pixel taken from a neighbour up or left in turn, and blurred again.

    The generating code means to exchange the two pixels, but copies one onto the other; so do we.
    """
    sigma, rounds = of_level(GLASS, level)
    count, inner = len(pixels), SIDE - 2
    moves = per_image(rng, count, lambda child: child.integers(-1, 1, (rounds, inner, inner, 2)))
    taken, images = np.floor(gaussian(pixels, sigma) * 255) / 255, np.arange(count)
    for turn in range(rounds):
        for row in range(SIDE - 1, 1, -1):
            for column in range(SIDE - 1, 1, -1):
                right, down = moves[:, turn, row - 2, column - 2].T
                taken[:, row, column] = taken[images, row + down, column + right]
    return gaussian(taken, sigma)


def zoom_blur(pixels: Array, level: int, _: Generator) -> Array:
    """Mean of the image and of itself enlarged about the middle, by steps of 1 %."""
    zooms = np.arange(1.0, of_level(LARGEST_ZOOM, level), ZOOM_STEP)
    channels = np.moveaxis(pixels, 3, 1)  # (n, 3, 32, 32)
    total = channels.copy()
    for zoom in zooms:
        enlarge = _enlargement(float(zoom))
        total += enlarge @ channels @ enlarge.T
    return np.moveaxis(total / (len(zooms) + 1), 1, 3)


def _enlargement(zoom: float) -> Array:
    """W (32, 32), W v being v enlarged linearly about the middle: the least part that fills it, corners on corners."""
    kept = int(np.ceil(SIDE / zoom))
    first, size = (SIDE - kept) // 2, round(kept * zoom)
    spread = np.linspace(0, kept - 1, size)
    trim = (size - SIDE) // 2
    places = first + spread[trim : trim + SIDE]
    weights: Array = np.maximum(1 - np.abs(places[:, None] - np.arange(SIDE)), 0)
    return weights
