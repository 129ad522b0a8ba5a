"""Made-up files in the formats of the data sets."""

import gzip
import io
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from benchmarks.datasets import cifar, dun, mnist, svhn, toy, uci
from benchmarks.datasets.cifar import ARCHIVES
from benchmarks.datasets.download import DataError, RemoteFile
from benchmarks.experiments.frontier.data import cifar_images

Bytes = npt.NDArray[np.uint8]
savemat = pytest.importorskip("scipy.io").savemat


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder of data; what it lacks cannot be downloaded."""
    monkeypatch.setenv("DEMUR_DATA_DIR", str(tmp_path))
    monkeypatch.setattr("benchmarks.datasets.folder.fetch", lambda file: pytest.fail(f"{file.path} is not there"))
    return tmp_path


def random_bytes(*shape: int) -> Bytes:
    return np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)


def write_idx(path: Path, array: Bytes) -> None:
    path.parent.mkdir(exist_ok=True)
    header = bytes([0, 0, 8, array.ndim]) + b"".join(size.to_bytes(4) for size in array.shape)
    path.write_bytes(gzip.compress(header + array.tobytes()))


def write_coded(path: Path, pixels: Bytes, classes: Bytes) -> None:
    """Planes R - G, G, B - G, differenced along columns and then along rows."""
    path.parent.mkdir(exist_ok=True)
    red, green, blue = np.moveaxis(pixels, 3, 0)
    planes = np.stack([red - green, green, blue - green])
    columns = np.diff(planes, axis=3, prepend=np.uint8(0))
    np.savez(path, planes=np.diff(columns, axis=2, prepend=np.uint8(0)), labels=classes)


def write_tar(path: Path, members: dict[str, bytes], links: dict[str, str] | None = None) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for name, target in (links or {}).items():
            link = tarfile.TarInfo(name)
            link.type, link.linkname = tarfile.SYMTYPE, target
            archive.addfile(link)
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return path


def records(pixels: Bytes, *labels: Bytes) -> bytes:
    planes = pixels.transpose(0, 3, 1, 2).reshape(len(pixels), -1)
    return np.concatenate([np.stack(labels, 1), planes], 1).tobytes()


def test_mnist(folder: Path) -> None:
    pixels, classes = random_bytes(3, 28, 28), np.array([7, 0, 9], np.uint8)
    write_idx(folder / "mnist" / "t10k-images-idx3-ubyte.gz", pixels)
    write_idx(folder / "mnist" / "t10k-labels-idx1-ubyte.gz", classes)
    tensor = mnist.images("mnist", "t10k")
    assert tensor.shape == (3, 1, 28, 28)
    assert np.array_equal(tensor[:, 0].numpy(), pixels.astype(np.float32) / 255)
    assert mnist.labels("mnist", "t10k").tolist() == [7, 0, 9]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\0\0\x0d\x01" + bytes(8), "found a header 00000d01, expected 000008"),
        (b"", "found a header , expected 000008"),
        (b"\0\0\x08\x01\0\0\0\x05abc", "found 11 bytes, expected 8 and 5"),
        (b"\0\0\x08\x01", "found 4 bytes, expected 8"),
    ],
)
def test_a_damaged_idx_file(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "x.gz").write_bytes(gzip.compress(content))
    with pytest.raises(DataError, match=message):
        mnist.read_idx(tmp_path / "x.gz")


def test_coded_cifar(folder: Path) -> None:
    pixels, classes = random_bytes(4, 32, 32, 3), np.array([3, 0, 9, 1], np.uint8)
    write_coded(folder / "cifar10" / "test_batch.npz", pixels, classes)
    found = cifar.read("cifar10", "test_batch")
    assert np.array_equal(found[0], pixels)
    assert np.array_equal(found[1], classes)
    images, targets = cifar_images("cifar10", "test_batch")
    assert images.shape == (4, 3, 32, 32)
    assert np.array_equal(images.numpy(), pixels.transpose(0, 3, 1, 2).astype(np.float32) / 255)
    assert targets.tolist() == [3, 0, 9, 1]


def test_cifar_in_its_archive(tmp_path: Path) -> None:
    pixels, classes = random_bytes(4, 32, 32, 3), np.array([3, 0, 9, 1], np.uint8)
    members = {"cifar-10-batches-bin/other.bin": b"x", "cifar-10-batches-bin/batch.bin": records(pixels, classes)}
    path = write_tar(tmp_path / "x.tar.gz", members)
    found = cifar.from_archive(path, ARCHIVES["cifar10"], "batch")
    assert np.array_equal(found[0], pixels)
    assert np.array_equal(found[1], classes)


def test_cifar_100_has_two_labels_of_which_the_second_counts(tmp_path: Path) -> None:
    pixels, coarse, fine = random_bytes(2, 32, 32, 3), np.array([19, 1], np.uint8), np.array([99, 42], np.uint8)
    path = write_tar(tmp_path / "x.tar.gz", {"cifar-100-binary/test.bin": records(pixels, coarse, fine)})
    found = cifar.from_archive(path, ARCHIVES["cifar100"], "test")
    assert np.array_equal(found[0], pixels)
    assert found[1].tolist() == [99, 42]


def test_a_given_archive(folder: Path) -> None:
    pixels, classes = random_bytes(1, 32, 32, 3), np.zeros(1, np.uint8)
    (folder / "cifar100").mkdir()
    path = folder / ARCHIVES["cifar100"].file.path
    write_tar(path, {"cifar-100-binary/train.bin": records(pixels, classes, classes)})
    assert np.array_equal(cifar.read("cifar100", "train")[0], pixels)


def test_members_with_paths_outside_and_links_are_not_followed(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    wanted, content = "cifar-10-batches-bin/batch.bin", records(random_bytes(1, 32, 32, 3), np.zeros(1, np.uint8))
    members = {f"../{wanted}": content, f"/{wanted}": content, f"cifar-10-batches-bin/../{wanted}": content}
    path = write_tar(tmp_path / "in" / "x.tar.gz", members, {wanted: f"../{wanted}"})
    with pytest.raises(DataError, match=f"found no file {wanted}, expected the binary version of cifar10"):
        cifar.from_archive(path, ARCHIVES["cifar10"], "batch")
    assert [found for found in tmp_path.rglob("*") if found.is_file()] == [path]


def test_a_member_of_another_length(tmp_path: Path) -> None:
    path = write_tar(tmp_path / "x.tar.gz", {"cifar-100-binary/test.bin": bytes(3073)})
    with pytest.raises(DataError, match="found 3,073 bytes, expected records of 3,074"):
        cifar.from_archive(path, ARCHIVES["cifar100"], "test")


def test_a_part_that_cifar_has_not(folder: Path) -> None:
    with pytest.raises(DataError, match=r"found 'data_batch_6', expected one of data_batch_1, .*test_batch"):
        cifar.read("cifar10", "data_batch_6")


def test_svhn(folder: Path) -> None:
    pixels, digits = random_bytes(3, 32, 32, 3), np.array([[10], [1], [9]], np.uint8)
    (folder / "svhn").mkdir()
    savemat(folder / "svhn" / "test_32x32.mat", {"X": pixels.transpose(1, 2, 3, 0), "y": digits}, do_compression=True)
    found = svhn.load()
    assert np.array_equal(found[0], pixels)
    assert found[1].tolist() == [0, 1, 9]


@pytest.mark.parametrize(
    ("content", "found"),
    [({"X": np.zeros((32, 32, 3, 1))}, "found no y"), ({"X": np.zeros((3, 3)), "y": np.zeros((1, 1))}, r"found X \(3")],
)
def test_a_file_that_is_not_svhn(tmp_path: Path, content: dict[str, Any], found: str) -> None:
    savemat(tmp_path / "x.mat", content)
    with pytest.raises(DataError, match=found):
        svhn.read(tmp_path / "x.mat")


def test_uci(folder: Path) -> None:
    wine = folder / "uci" / "wine"
    (wine / "gap").mkdir(parents=True)
    files = {"data": "1 2 3\n4 5 6\n", "index_features": "0\n2\n", "index_target": "1\n"}
    splits = {"gap/index_train_4": "1\n0\n", "gap/index_test_4": "0\n1\n"}
    for name, content in (files | splits).items():
        (wine / f"{name}.txt").write_text(content)
    x, y = uci.table("wine")
    assert x.tolist() == [[1, 3], [4, 6]]
    assert y.tolist() == [[2], [5]]
    assert [rows.tolist() for rows in uci.split("wine", "gap", 4)] == [[1, 0], [0, 1]]


def test_the_numbers_of_splits() -> None:
    found = {name: (uci.splits(name, "standard"), uci.splits(name, "gap")) for name in ("wine", "kin8nm", "protein")}
    assert found == {"wine": (20, 11), "kin8nm": (20, 8), "protein": (5, 9)}


def test_a_split_that_a_table_has_not() -> None:
    with pytest.raises(DataError, match=r"found uci/kin8nm/gap/index_train_8.txt, expected .*index_train_7.txt"):
        uci.split("kin8nm", "gap", 8)


def test_a_table_that_is_not_there() -> None:
    with pytest.raises(DataError, match=r"found uci/boston/data.txt, expected a file that dun.csv lists"):
        uci.table("boston")


def test_every_listed_file_has_a_source_and_a_checksum() -> None:
    files = dun.files()
    assert len(files) == 158
    for path, file in files.items():
        assert str(file.path) == path
        assert file.urls[0].startswith(dun.SOURCE)
        assert len(bytes.fromhex(file.sha256)) == 32
        assert file.size > 0


def test_given_toys(folder: Path) -> None:
    (folder / "toy").mkdir()
    np.save(folder / "toy" / "agw_1d.npy", np.arange(6.0).reshape(3, 2))
    np.save(folder / "toy" / "wiggle_1d.npy", np.ones((2, 2), np.float32))
    assert toy.columns("agw_1d").tolist() == [[0, 1], [2, 3], [4, 5]]
    assert toy.columns("wiggle_1d").tolist() == [[1, 1], [1, 1]]


def test_the_generated_toy(folder: Path) -> None:
    found = toy.columns("wiggle_1d")
    assert found.shape == (300, 2)
    assert found.mean(0) == pytest.approx([0, 0], abs=1e-6)
    assert found.std(0) == pytest.approx([1, 1], abs=1e-6)


def test_objects_are_never_unpickled(folder: Path) -> None:
    (folder / "toy").mkdir()
    np.save(folder / "toy" / "my_1d.npy", np.array([{}], dtype=object), allow_pickle=True)
    with pytest.raises(ValueError, match="allow_pickle=False"):
        toy.columns("my_1d")


def test_what_is_downloaded() -> None:
    """Each has addresses and a SHA-256."""
    archives = [archive.file for archive in ARCHIVES.values()]
    files: list[RemoteFile] = [*archives, svhn.TEST, *dun.files().values()]
    assert all(file.urls and len(file.sha256) == 64 for file in files)
