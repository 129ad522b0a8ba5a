"""examples/demo.py: its data sets are read and checked, and the whole of it works with each that is here."""

import gzip
import hashlib
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from demur.offline.recipes.load import load_recipe
from tests.support.server import ROOT
from tests.support.sockets import free_port

EXAMPLES = ROOT / "examples"
DEMO = [sys.executable, str(EXAMPLES / "demo.py")]
IMAGES = np.arange(3 * 28 * 28, dtype=np.int64).reshape(3, 28, 28).astype(np.uint8)
LABELS = np.array([7, 0, 9], np.uint8)


def idx(values: Any, kind: bytes) -> bytes:
    sizes = b"".join(size.to_bytes(4) for size in values.shape)
    return gzip.compress(kind + sizes + values.tobytes(), mtime=0)


FILES = {"t10k-images-idx3": idx(IMAGES, b"\0\0\x08\x03"), "t10k-labels-idx1": idx(LABELS, b"\0\0\x08\x01")}


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The data set of the example, on this disk and with few images."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DEMUR_DATA_DIR", raising=False)
    for name, content in FILES.items():
        (tmp_path / f"{name}-ubyte.gz").write_bytes(content)
    digits = vars(load_recipe(EXAMPLES / "mnist.py").module)["DIGITS"]
    sums = {name: hashlib.sha256(content).hexdigest() for name, content in FILES.items()}
    return replace(digits, url=tmp_path.as_uri(), sha256=sums)


def test_a_data_set_is_downloaded_once(source: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    inputs, labels = source.read("t10k", slice(2))
    torch.testing.assert_close(inputs, torch.tensor(IMAGES[:2, None]) / 255)
    assert labels.tolist() == [7, 0]
    assert capsys.readouterr().out.count("Downloading") == 2
    source.read("t10k", slice(None))
    assert "Downloading" not in capsys.readouterr().out
    assert sorted(path.name for path in (tmp_path / "data" / "mnist").iterdir()) == [
        "t10k-images-idx3-ubyte.gz",
        "t10k-labels-idx1-ubyte.gz",
    ]


def test_a_file_that_is_another_is_refused(source: Any, tmp_path: Path) -> None:
    (tmp_path / "t10k-images-idx3-ubyte.gz").write_bytes(b"something else")
    with pytest.raises(OSError, match=r"t10k-images-idx3-ubyte.gz: found a file with sha256 .*, expected"):
        source.read("t10k", slice(2))
    assert not (tmp_path / "data").exists()


def test_without_a_connection_the_remedy_is_told(source: Any) -> None:
    away = replace(source, url="http://127.0.0.1:9")
    with pytest.raises(
        OSError, match=r"not downloaded .*; try again with a connection, or put the file into data/mnist"
    ):
        away.read("t10k", slice(2))


def test_a_misspelt_data_set() -> None:
    done = subprocess.run([*DEMO, "--dataset", "mnsit"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == "error: found 'mnsit' (did you mean 'mnist'?), expected one of digits, mnist, fashion-mnist\n"


@pytest.mark.slow
def test_the_whole_demo(tmp_path: Path) -> None:
    given = os.environ.get("DEMUR_DATA_DIR")
    if given is None:
        pytest.skip("needs DEMUR_DATA_DIR with the data set")
    done = subprocess.run(
        [*DEMO, "--dataset", "mnist", "--out", "bundle", "--port", str(free_port())],
        cwd=tmp_path,
        check=True,
        capture_output=True,
        text=True,
        env=os.environ | {"DEMUR_DATA_DIR": str(Path(given).resolve())},
    )
    assert done.stdout.count(": accepted") == 1
    assert done.stdout.count(": REJECTED") == 1
    assert (tmp_path / "bundle" / "report.html").is_file()
