"""Kinds of shift that no strategy sees while it chooses: pixels in [0, 1], (n, C, H, W) -> the same shape."""

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

SPECKS, CONTRAST, LIGHT = 0.1, 0.4, 0.3
SHIFT, SHEAR, ZOOM = 0.3, 0.5, 0.7  # in units of half the side; the scale of the section that is seen


def specks(pixels: Tensor) -> Tensor:
    """Each pixel black or white with probability `SPECKS`."""
    generator = torch.Generator().manual_seed(0)
    shape = (len(pixels), 1, *pixels.shape[2:])
    hit, white = (torch.rand(shape, generator=generator) for _ in range(2))
    return torch.where(hit < SPECKS, (white < 0.5).to(pixels.dtype), pixels)


def contrast(pixels: Tensor) -> Tensor:
    """Nearer to the mean of the image."""
    mean = pixels.mean((1, 2, 3), keepdim=True)
    return mean + CONTRAST * (pixels - mean)


def light(pixels: Tensor) -> Tensor:
    """Brighter, up to white."""
    return (pixels + LIGHT).clamp(max=1.0)


def pixelation(pixels: Tensor) -> Tensor:
    """Squares of 2 x 2 pixels."""
    small = F.avg_pool2d(pixels, 2)
    return F.interpolate(small, size=pixels.shape[2:], mode="nearest")


def translation(pixels: Tensor) -> Tensor:
    """To the left and up; black comes in."""
    return _affine(pixels, [[1.0, 0.0, SHIFT], [0.0, 1.0, SHIFT]])


def shear(pixels: Tensor) -> Tensor:
    """Rows moved the more, the lower they are."""
    return _affine(pixels, [[1.0, SHEAR, 0.0], [0.0, 1.0, 0.0]])


def zoom(pixels: Tensor) -> Tensor:
    """Larger, about the middle."""
    return _affine(pixels, [[ZOOM, 0.0, 0.0], [0.0, ZOOM, 0.0]])


def rotation(degrees: float) -> Callable[[Tensor], Tensor]:
    """Turned about the middle; black comes in."""
    cosine, sine = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    return lambda pixels: _affine(pixels, [[cosine, -sine, 0.0], [sine, cosine, 0.0]])


def _affine(pixels: Tensor, matrix: list[list[float]]) -> Tensor:
    grid = F.affine_grid(torch.tensor(matrix).expand(len(pixels), 2, 3), list(pixels.shape), align_corners=False)
    return F.grid_sample(pixels, grid, align_corners=False)


UNSEEN: dict[str, Callable[[Tensor], Tensor]] = {
    "specks": specks,
    "contrast": contrast,
    "light": light,
    "pixelation": pixelation,
    "translation": translation,
    "shear": shear,
    "zoom": zoom,
}
ANGLES = (15, 30, 45, 60, 90, 120, 150, 180)
ROTATIONS = {f"rotation-{angle}": rotation(angle) for angle in ANGLES}
