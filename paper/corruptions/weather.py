"""Weather: pixels (n, 32, 32, 3) in [0, 1] -> the same shape, not clipped."""

import numpy as np
from numpy.random import Generator

from paper.corruptions.levels import SIDE, Array, of_level, per_image

BRIGHTNESS = (0.05, 0.1, 0.15, 0.2, 0.3)
FOG = ((0.2, 3.0), (0.5, 3.0), (0.75, 2.5), (1.0, 2.0), (1.5, 1.75))  # density, and decay from one scale to the next
FROST = ((1.0, 0.2), (1.0, 0.3), (0.9, 0.4), (0.85, 0.4), (0.75, 0.45))  # weights of the image and of the frost
AXES = np.deg2rad([0.0, 60.0, 120.0])  # of an ice crystal
NEEDLE_LENGTH, NEEDLE_WIDTH = 4.0, 0.6  # pixels, standard deviations
ICE = np.array([0.82, 0.91, 1.0])  # its colour


def brightness(pixels: Array, level: int, _: Generator) -> Array:
    """Value V -> V + b in HSV, up to 1, hue and saturation kept: a common factor for the three channels."""
    value: Array = pixels.max(3, keepdims=True)
    brighter = np.minimum(value + of_level(BRIGHTNESS, level), 1)
    return np.where(value > 0, pixels * brighter / np.where(value > 0, value, 1), brighter)


def fog(pixels: Array, level: int, rng: Generator) -> Array:
    """(x + d h) m / (m + d), h a plasma fractal and m the largest value of the image."""
    density, decay = of_level(FOG, level)
    largest: Array = pixels.max((1, 2, 3), keepdims=True)
    heights = plasma(_uniform(rng, len(pixels)), decay)[..., None]
    return (pixels + density * heights) * largest / (largest + density)


def plasma(deviations: Array, decay: float) -> Array:
    """Plasma fractals in [0, 1] by the diamond-square algorithm on a torus.

    deviations (n, s, s), in [-1, 1], s a power of 2: by how much each point deviates from the mean of the four around
    it. The amplitude falls by decay^2 from one scale to the next.
    """
    heights = np.zeros_like(deviations)
    amplitude, step = 1.0, deviations.shape[1]
    while step > 1:
        half = step // 2
        corners, middles = heights[:, ::step, ::step], heights[:, half::step, half::step]
        rows = corners + np.roll(corners, -1, 1)
        middles[:] = (rows + np.roll(rows, -1, 2)) / 4 + amplitude * deviations[:, half::step, half::step]
        for axis, places in ((2, np.s_[:, ::step, half::step]), (1, np.s_[:, half::step, ::step])):
            across = corners + np.roll(corners, -1, axis) + middles + np.roll(middles, 1, 3 - axis)
            heights[places] = across / 4 + amplitude * deviations[places]
        amplitude, step = amplitude / decay**2, half
    least, largest = (np.asarray(bound((1, 2), keepdims=True)) for bound in (heights.min, heights.max))
    scaled: Array = (heights - least) / (largest - least)
    return scaled


def frost(pixels: Array, level: int, rng: Generator) -> Array:
    """a x + b ice; the published images show photographs of frost, ours a generated texture."""
    image, ice = of_level(FROST, level)
    return image * pixels + ice * _ice(rng, len(pixels))


def _ice(rng: Generator, count: int) -> Array:
    """Needles along the three axes of a crystal, turned at random, denser here than there: (n, 32, 32, 3) in [0, 1]."""
    draws = per_image(rng, count, lambda child: child.uniform(-1, 1, (len(AXES) + 2, SIDE, SIDE)))
    turn = np.pi * draws[:, -1, 0, 0]
    angles = turn[:, None, None, None] + AXES[:, None, None]
    down, right = np.fft.fftfreq(SIDE)[:, None], np.fft.fftfreq(SIDE)
    along = np.cos(angles) * right + np.sin(angles) * down  # (n, 3, 32, 32), cycles a pixel
    across = np.cos(angles) * down - np.sin(angles) * right
    response = np.exp(-2 * np.pi**2 * ((NEEDLE_LENGTH * along) ** 2 + (NEEDLE_WIDTH * across) ** 2))
    needles = np.fft.ifft2(np.fft.fft2(draws[:, : len(AXES)]) * response).real
    strongest: Array = (needles / needles.std((2, 3), keepdims=True)).max(1)  # of the axes
    sharp = np.clip((strongest + 0.2) / 2.2, 0, 1)
    cover = 0.3 + 0.7 * plasma(draws[:, -2], 1.6)
    ice: Array = (0.25 + 0.75 * sharp * cover)[..., None] * ICE
    return ice


def _uniform(rng: Generator, count: int) -> Array:
    return per_image(rng, count, lambda child: child.uniform(-1, 1, (SIDE, SIDE)))
