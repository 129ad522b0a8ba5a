"""CIFAR-10 and CIFAR-100 (Krizhevsky, 2009): pixels (n, 32, 32, 3) uint8 and classes (n,) uint8.

Downloaded, they are the binary version: records of one or two bytes of labels (the last is the class) and 3,072 bytes
of pixels, red, green and blue. In DEMUR_DATA_DIR they may also lie coded, which is smaller: PART.npz with `labels`
and `planes` (3, n, 32, 32) uint8, R - G, G, B - G modulo 256, each differenced along columns and then along rows. The
coded CIFAR-100 is sorted by class; its images are those of the binary version, in another order.

The SHA-256 of the archives are those that tensorflow-datasets lists.
"""

import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np
import numpy.typing as npt

from benchmarks.datasets.download import DataError, RemoteFile
from benchmarks.datasets.folder import given, local

Bytes = npt.NDArray[np.uint8]
Examples = tuple[Bytes, Bytes]
PIXELS = 3 * 32 * 32


@dataclass(frozen=True)
class Archive:
    """label_bytes: before the pixels of a record."""

    file: RemoteFile
    folder: str
    label_bytes: int
    parts: tuple[str, ...]


ARCHIVES = {
    "cifar10": Archive(
        RemoteFile(
            "cifar10",
            "cifar-10-binary.tar.gz",
            ("https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",),
            "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
            170052171,
        ),
        "cifar-10-batches-bin",
        1,
        (*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"),
    ),
    "cifar100": Archive(
        RemoteFile(
            "cifar100",
            "cifar-100-binary.tar.gz",
            ("https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz",),
            "58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec",
            168513733,
        ),
        "cifar-100-binary",
        2,
        ("train", "test"),
    ),
}


def read(name: str, part: str) -> Examples:
    """A part of "cifar10" (data_batch_1 ... data_batch_5, test_batch) or "cifar100" (train, test)."""
    archive = ARCHIVES[name]
    if part not in archive.parts:
        raise DataError(f"part of {name}: found {part!r}, expected one of {', '.join(archive.parts)}")
    coded = given(Path(name) / f"{part}.npz")
    return decoded(coded) if coded is not None else from_archive(local(archive.file), archive, part)


def decoded(path: Path) -> Examples:
    """The examples in a coded file."""
    with np.load(path, allow_pickle=False) as kept:
        planes = np.cumsum(np.cumsum(kept["planes"], axis=2, dtype=np.uint8), axis=3, dtype=np.uint8)
        classes = kept["labels"].astype(np.uint8)
    planes[0] += planes[1]
    planes[2] += planes[1]
    return np.ascontiguousarray(planes.transpose(1, 2, 3, 0)), classes


def from_archive(path: Path, archive: Archive, part: str) -> Examples:
    """The examples in one member, which is read where it lies: nothing is extracted, and no other member looked at."""
    wanted = f"{archive.folder}/{part}.bin"
    with tarfile.open(path, "r|gz") as members:
        for member in members:
            if member.name == wanted and member.isfile():
                content = members.extractfile(member)
                assert content is not None
                return _records(content, archive, part)
    raise DataError(f"{path}: found no file {wanted}, expected the binary version of {archive.file.folder}")


def _records(content: IO[bytes], archive: Archive, part: str) -> Examples:
    """Parse records of labels and pixels."""
    found, size = content.read(), archive.label_bytes + PIXELS
    if len(found) % size:
        raise DataError(
            f"{part}.bin of {archive.file.folder}: found {len(found):,} bytes, expected records of {size:,}"
        )
    records = np.frombuffer(found, np.uint8).reshape(-1, size)
    pixels = records[:, archive.label_bytes :].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    return np.ascontiguousarray(pixels), records[:, archive.label_bytes - 1].copy()
