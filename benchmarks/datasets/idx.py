"""MNIST's idx format: a magic number, the sizes of the axes, and bytes in C order."""

import gzip
import math
from pathlib import Path

import numpy as np
import numpy.typing as npt

from benchmarks.datasets.download import DataError

UNSIGNED_BYTES = 8


def read(path: Path) -> npt.NDArray[np.uint8]:
    """The array in a gzipped idx file of unsigned bytes."""
    with gzip.open(path) as source:
        content = source.read()
    zeros, kind, axes = content[:2], content[2:3], content[3:4]
    if zeros != b"\0\0" or kind != bytes([UNSIGNED_BYTES]) or not axes:
        raise DataError(f"{path}: found a header {content[:4].hex()}, expected 000008 and the number of axes (idx)")
    start = 4 + 4 * axes[0]
    shape = [int.from_bytes(content[place : place + 4]) for place in range(4, start, 4)]
    if len(content) != start + math.prod(shape):
        raise DataError(f"{path}: found {len(content):,} bytes, expected {start} and {' x '.join(map(str, shape))}")
    return np.frombuffer(content, np.uint8, offset=start).reshape(shape).copy()
