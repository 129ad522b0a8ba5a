"""MNIST (LeCun, Cortes, Burges) and Fashion-MNIST (Xiao, Rasul, Vollgraf): gzipped idx files."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from benchmarks.datasets import idx
from benchmarks.datasets.download import RemoteFile
from benchmarks.datasets.folder import local

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


class _Original(NamedTuple):
    sha256: str
    size: int


ORIGINALS = {
    "mnist": {
        "train-images-idx3": _Original("440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609", 9912422),
        "train-labels-idx1": _Original("3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c", 28881),
        "t10k-images-idx3": _Original("8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6", 1648877),
        "t10k-labels-idx1": _Original("f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6", 4542),
    },
    "fashion-mnist": {
        "train-images-idx3": _Original("3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84", 26421880),
        "train-labels-idx1": _Original("a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845", 29515),
        "t10k-images-idx3": _Original("346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073", 4422102),
        "t10k-labels-idx1": _Original("67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5", 5148),
    },
}


def images(name: str, part: str) -> npt.NDArray[np.uint8]:
    """Pixels (n, 28, 28) of "mnist" or "fashion-mnist"; part is "train" or "t10k"."""
    return idx.read(local(_file(name, f"{part}-images-idx3")))


def labels(name: str, part: str) -> npt.NDArray[np.uint8]:
    """Class numbers (n,)."""
    return idx.read(local(_file(name, f"{part}-labels-idx1")))


def _file(name: str, stem: str) -> RemoteFile:
    original, file = ORIGINALS[name][stem], f"{stem}-ubyte.gz"
    urls = tuple(f"{source}/{file}" for source in SOURCES[name])
    return RemoteFile(name, file, urls, {"sha256": original.sha256}, original.size)
