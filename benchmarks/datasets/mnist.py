"""MNIST (LeCun, Cortes, Burges) and Fashion-MNIST (Xiao, Rasul, Vollgraf) as tensors.

The files are in MNIST's idx format: a magic number, the sizes of the axes, and bytes in C order, gzipped.
"""

import gzip
import math
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from benchmarks.datasets.download import DataError, RemoteFile
from benchmarks.datasets.folder import local

MEAN, STD = 0.1307, 0.3081
UNSIGNED_BYTES = 8
SOURCES = {
    # The first address is the original; it often asks for a password.
    "mnist": (
        "http://yann.lecun.com/exdb/mnist",
        "https://storage.googleapis.com/cvdf-datasets/mnist",
        "https://ossci-datasets.s3.amazonaws.com/mnist",
    ),
    "fashion-mnist": (
        "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com",
        "https://github.com/zalandoresearch/fashion-mnist/raw/master/data/fashion",
    ),
}
# File -> SHA-256 and bytes.
ORIGINALS = {
    "mnist": {
        "train-images-idx3": ("440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609", 9912422),
        "train-labels-idx1": ("3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c", 28881),
        "t10k-images-idx3": ("8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6", 1648877),
        "t10k-labels-idx1": ("f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6", 4542),
    },
    "fashion-mnist": {
        "train-images-idx3": ("3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84", 26421880),
        "train-labels-idx1": ("a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845", 29515),
        "t10k-images-idx3": ("346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073", 4422102),
        "t10k-labels-idx1": ("67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5", 5148),
    },
}


def images(name: str, part: str) -> Tensor:
    """Pixels in [0, 1], (n, 1, 28, 28) float32, of "mnist" or "fashion-mnist"; part is "train" or "t10k"."""
    return read_idx(local(_file(name, f"{part}-images-idx3"))).unsqueeze(1).float() / 255


def labels(name: str, part: str) -> Tensor:
    """Class numbers (n,) int64."""
    return read_idx(local(_file(name, f"{part}-labels-idx1"))).long()


def normalise(pixels: Tensor) -> Tensor:
    """Pixels to zero mean and unit deviation over the training digits."""
    return (pixels - MEAN) / STD


def examples(name: str, part: str) -> tuple[Tensor, Tensor]:
    """Normalised pixels and class numbers."""
    return normalise(images(name, part)), labels(name, part)


def read_idx(path: Path) -> Tensor:
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
    return torch.from_numpy(np.frombuffer(content, np.uint8, offset=start).reshape(shape).copy())


def _file(name: str, stem: str) -> RemoteFile:
    (sha256, size), file = ORIGINALS[name][stem], f"{stem}-ubyte.gz"
    return RemoteFile(name, file, tuple(f"{source}/{file}" for source in SOURCES[name]), sha256, size)
