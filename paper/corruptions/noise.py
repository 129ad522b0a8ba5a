"""Noise: pixels (n, 32, 32, 3) in [0, 1] -> the same shape, not clipped."""

import numpy as np
from numpy.random import Generator

from paper.corruptions.levels import Array, of_level, per_image

GAUSSIAN = (0.04, 0.06, 0.08, 0.09, 0.10)  # standard deviation
PHOTONS = (500, 250, 100, 75, 50)  # expected number of a white pixel
IMPULSE = (0.01, 0.02, 0.03, 0.05, 0.07)  # share of the values that are lost
SPECKLE = (0.06, 0.10, 0.12, 0.16, 0.20)  # standard deviation of a white pixel


def gaussian_noise(pixels: Array, level: int, rng: Generator) -> Array:
    """x + sigma e, e standard normal."""
    return pixels + of_level(GAUSSIAN, level) * _normal(pixels, rng)


def shot_noise(pixels: Array, level: int, rng: Generator) -> Array:
    """Poisson(c x) / c: photons are counted."""
    photons = of_level(PHOTONS, level)
    counted = [child.poisson(photons * image) for image, child in zip(pixels, rng.spawn(len(pixels)), strict=True)]
    return np.stack(counted) / photons


def impulse_noise(pixels: Array, level: int, rng: Generator) -> Array:
    """Each value, channel by channel, is 0 or 1 with a small probability."""
    share = of_level(IMPULSE, level)
    lost, white = np.moveaxis(per_image(rng, len(pixels), lambda child: child.random((2, *pixels.shape[1:]))), 1, 0)
    return np.where(lost < share, (white < 0.5).astype(pixels.dtype), pixels)


def speckle_noise(pixels: Array, level: int, rng: Generator) -> Array:
    """x + sigma x e, e standard normal."""
    return pixels + of_level(SPECKLE, level) * pixels * _normal(pixels, rng)


def _normal(pixels: Array, rng: Generator) -> Array:
    return per_image(rng, len(pixels), lambda child: child.standard_normal(pixels.shape[1:]))
