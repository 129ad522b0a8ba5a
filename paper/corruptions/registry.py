"""The 16 corruptions of CIFAR-10 by name, on bytes.

Hendrycks and Dietterich ("Benchmarking Neural Network Robustness to Common Corruptions and Perturbations", ICLR 2019)
define 19; CIFAR-10-C is all of them at five levels. Daxberger et al. use 16, after Ovadia et al. ("Can You Trust Your
Model's Uncertainty?", NeurIPS 2019), whose code names these (google-research, uq_benchmark_2019, `CORRUPTION_TYPES`;
its 17th, `static_compression`, is none of CIFAR-10-C's). Not among them: motion blur, snow and JPEG.

Definitions and constants are those of the code that made CIFAR-10-C, for images of 32 x 32 pixels. `STAND_INS` says
where ours differ in kind; otherwise only the random draws and the last bits do.
"""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
from numpy.random import Generator

from paper.corruptions import blur, digital, noise, weather
from paper.corruptions.levels import SIDE, Corruption
from paper.corruptions.spatter import spatter

Bytes = npt.NDArray[np.uint8]
ByteCorruption = Callable[[Bytes, int, Generator], Bytes]
CHUNK = 500  # images at a time, which bounds the memory

STAND_INS = {
    "frost": "a generated texture of ice needles in place of the published photographs of frost",
    "spatter": "Canny's edges and the distances from them are computed by SciPy's filters, not by OpenCV's",
}


def on_bytes(corruption: Corruption) -> ByteCorruption:
    """The same for bytes: pixels (n, 32, 32, 3) uint8 -> the same shape; clipped and truncated, as those published.

    Each image has a random stream of its own, spawned from `rng`: the first images of a batch come out as if alone.
    """

    def corrupted(pixels: Bytes, level: int, rng: Generator) -> Bytes:
        if pixels.dtype != np.uint8 or pixels.shape != (max(len(pixels), 1), SIDE, SIDE, 3):
            expected = f"uint8 (n, {SIDE}, {SIDE}, 3), n > 0"
            raise ValueError(f"pixels: found {pixels.dtype} {pixels.shape}, expected {expected}")
        starts = range(0, len(pixels), CHUNK)
        parts = (corruption(pixels[start : start + CHUNK] / 255, level, rng) for start in starts)
        return np.concatenate([(np.clip(part, 0, 1) * 255).astype(np.uint8) for part in parts])

    return corrupted


CORRUPTIONS: dict[str, ByteCorruption] = {
    "gaussian_noise": on_bytes(noise.gaussian_noise),
    "shot_noise": on_bytes(noise.shot_noise),
    "impulse_noise": on_bytes(noise.impulse_noise),
    "speckle_noise": on_bytes(noise.speckle_noise),
    "gaussian_blur": on_bytes(blur.gaussian_blur),
    "defocus_blur": on_bytes(blur.defocus_blur),
    "glass_blur": on_bytes(blur.glass_blur),
    "zoom_blur": on_bytes(blur.zoom_blur),
    "frost": on_bytes(weather.frost),
    "fog": on_bytes(weather.fog),
    "brightness": on_bytes(weather.brightness),
    "spatter": on_bytes(spatter),
    "contrast": on_bytes(digital.contrast),
    "elastic_transform": on_bytes(digital.elastic_transform),
    "pixelate": on_bytes(digital.pixelate),
    "saturate": on_bytes(digital.saturate),
}
