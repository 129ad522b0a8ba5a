"""The golden digits bundle, and digits that it was not fitted on."""

from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float32]
GOLDEN = Path(__file__).parents[1] / "golden"


@cache
def digits() -> Array:
    """(n, 1, 8, 8), 0 to 1, in an order of their own: those that `examples/digits.py` does not train with."""
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    found = load_digits()
    rows = np.arange(len(found.target))
    _, rest = train_test_split(rows, test_size=0.4, random_state=0, stratify=found.target)
    images: Array = (found.images[rest] / 16).astype(np.float32)[:, None]
    return images


def turned(images: Array) -> Array:
    return np.rot90(images, 1, (2, 3))


def inverted(images: Array) -> Array:
    return 1 - images
