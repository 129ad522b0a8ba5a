"""Grey images of 28 x 28 pixels in ten classes: MNIST and the data sets made like it, in gzipped idx files.

The files are read from `$DEMUR_DATA_DIR/NAME` where that folder holds them, and else downloaded once to `data/NAME`.
"""

import gzip
import hashlib
import os
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from rich.progress import track
from torch import Tensor, nn

Data = tuple[Tensor, Tensor]
SIZE, CLASSES = 28, 10
TRAIN = slice(20_000)  # more gains little here
# Halves of the test images at random: they are by other writers than those for training, and by the same ones.
CALIBRATION, TEST = np.split(np.random.default_rng(0).permutation(10_000), 2)
TIMEOUT = 30.0  # seconds without an answer


@dataclass(frozen=True)
class IdxImages:
    """A data set at `url`; sha256: of its four files, by the part of the name before `-ubyte.gz`."""

    name: str
    url: str
    sha256: Mapping[str, str]

    def read(self, part: str, rows: slice | npt.NDArray[np.int64]) -> Data:
        """Pixels from 0 to 1, (n, 1, 28, 28), and class numbers; part: "train" or "t10k"."""
        images = _values(self._file(f"{part}-images-idx3"), 16).reshape(-1, 1, SIZE, SIZE)[rows]
        labels = _values(self._file(f"{part}-labels-idx1"), 8)[rows]
        return torch.as_tensor(images / np.float32(255)), torch.as_tensor(labels.astype(np.int64))

    def _file(self, stem: str) -> Path:
        name = f"{stem}-ubyte.gz"
        given = Path(os.environ.get("DEMUR_DATA_DIR", "data")) / self.name / name
        path = given if given.is_file() else Path("data") / self.name / name
        return path if path.is_file() else self._download(name, self.sha256[stem], path)

    def _download(self, name: str, sha256: str, path: Path) -> Path:
        """To a file beside first, which gets its name when it is whole and right."""
        source = f"{self.url}/{name}"
        print(f"Downloading {source} to {path.parent}", flush=True)
        try:
            with urllib.request.urlopen(source, timeout=TIMEOUT) as answer:
                content = answer.read()
        except (urllib.error.URLError, OSError) as error:
            raise OSError(
                f"{source}: not downloaded ({error}); try again with a connection, or put the file into {path.parent}"
            ) from None
        found = hashlib.sha256(content).hexdigest()
        if found != sha256:
            raise OSError(f"{source}: found a file with sha256 {found}, expected {sha256}")
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(f".{name}.part")
        part.write_bytes(content)
        return part.replace(path)


def _values(path: Path, header: int) -> npt.NDArray[np.uint8]:
    """The bytes behind the header: a magic number and the sizes of the axes."""
    return np.frombuffer(gzip.decompress(path.read_bytes()), np.uint8, offset=header)


def network() -> nn.Module:
    """Two convolutions and a linear layer."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(32 * (SIZE // 4) ** 2, CLASSES),
    )


def trained(data: Data, epochs: int = 5) -> nn.Module:
    """Train the network (half a minute on two cores)."""
    torch.manual_seed(0)
    net, (inputs, targets) = network(), data
    optimiser = torch.optim.AdamW(net.parameters(), lr=2e-3, weight_decay=1e-2)
    for _ in track(range(epochs), description="Training"):
        for rows in torch.randperm(len(inputs)).split(64):
            optimiser.zero_grad()
            nn.functional.cross_entropy(net(inputs[rows]), targets[rows]).backward()
            optimiser.step()
    return net.eval()


def not_such_images(data: Data, count: int = 500) -> Data:
    """What a classifier of such images should reject: some with black and white exchanged, and uniform noise."""
    noise = torch.rand(count, 1, SIZE, SIZE, generator=torch.Generator().manual_seed(0))
    inputs = torch.cat([1 - data[0][:count], noise])
    return inputs, torch.zeros(len(inputs), dtype=torch.int64)
