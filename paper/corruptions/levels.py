"""What the families of corruptions share: the constants of a level, and a random stream for each image."""

from collections.abc import Callable
from typing import TypeVar

import numpy as np
import numpy.typing as npt
from numpy.random import Generator

Array = npt.NDArray[np.float64]
Corruption = Callable[[Array, int, Generator], Array]
T = TypeVar("T")
S = TypeVar("S", bound=np.generic)

LEVELS = range(1, 6)
SIDE = 32


def of_level(constants: tuple[T, T, T, T, T], level: int) -> T:
    """The constants of a level from 1 to 5."""
    if level not in LEVELS:
        raise ValueError(f"level of corruption: found {level!r}, expected a whole number from 1 to 5")
    return constants[level - 1]


def per_image(rng: Generator, count: int, draw: Callable[[Generator], npt.NDArray[S]]) -> npt.NDArray[S]:
    """`draw` once for each image, each from a stream of its own: the images after it change nothing."""
    return np.stack([draw(child) for child in rng.spawn(count)])
