"""Six data sets from packages of the Python package index: two tables, a series, a text, two kinds of image.

fair          6,366 answers of married women to a survey (statsmodels): whether they had an affair
penguins      342 penguins by four measurements (palmerpenguins): the species
vowels        640 utterances, 25 steps of 12 coefficients (aeon, JapaneseVowels): the speaker
words         7,500 English words, letter by letter (textblob, Brill's lexicon): the part of speech
faces         200 grey patches of 25 x 25 pixels (scikit-image, a part of Labelled Faces in the Wild): face or not
textures      768 grey patches of 32 x 32 pixels of three photographs (scikit-image): brick, grass or gravel
"""

import csv
import io
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from PIL import Image
from sklearn.model_selection import train_test_split
from torch import Tensor

from benchmarks.datasets.packages import PackagedFile, packaged

Array = npt.NDArray[Any]
Examples = tuple[Tensor, Tensor]

FAIR = PackagedFile(
    "statsmodels==0.15.0",
    "statsmodels/datasets/fair/fair.csv",
    "fd5f3f094a34fc35ca346a14c359e046ed27843038d6921efcd50a7ab21f6af0",
)
PENGUINS = PackagedFile(
    "palmerpenguins==0.1.6",
    "palmerpenguins/data/penguins.csv",
    "f204db2c753b0937caac3cb35258562c14f073e4bbc76be24b4c51ce22767a93",
)
VOWELS = tuple(
    PackagedFile("aeon==1.6.0", f"aeon/datasets/data/JapaneseVowels/JapaneseVowels_eq_{part}.ts", sha256)
    for part, sha256 in {
        "TRAIN": "8958279c6296b97c8e34038346407935222db171492b84dffa3b930d087bc2d6",
        "TEST": "bb83bb1aa6bfb17faae269f6829b7cac71de36fdd3264ee34137fe90270d5895",
    }.items()
)
LEXICON = PackagedFile(
    "textblob==0.20.1",
    "textblob/en/en-lexicon.txt",
    "9545c71faf16e4461d0bff1d9948fe92b2cf94766af118a6c69c37b43363d5d2",
)
FACES = PackagedFile(
    "scikit-image==0.26.0",
    "skimage/data/lfw_subset.npy",
    "9560ec2f5edfac01973f63a8a99d00053fecd11e21877e18038fbe500f8e872c",
)
TEXTURES = tuple(
    PackagedFile("scikit-image==0.26.0", f"skimage/data/{name}.png", sha256)
    for name, sha256 in {
        "brick": "7966caf324f6ba843118d98f7a07746d22f6a343430add0233eca5f6eaaa8fcf",
        "grass": "b6b6022426b38936c43a4ac09635cd78af074e90f42ffa8227ac8b7452d39f89",
        "gravel": "c48615b451bf1e606fbd72c0aa9f8cc0f068ab7111ef7d93bb9b0f2586440c12",
    }.items()
)

PARTS_OF_SPEECH = ("NN", "NNS", "JJ", "VBG", "RB")
WORD_LENGTH, WORDS, ALPHABET = 12, 7_500, 27  # letters of a word at most, 0 fills
PATCH = 32
# Of the disturbed test examples: noise, in standard deviations of the training data at the same place (of images: of
# all pixels), and the share of letters that become others.
NOISE, TYPOS = 0.5, 0.2


@dataclass(frozen=True)
class Problem:
    """Examples to train, to hold out and to test, and the inputs of the test disturbed.

    event_share: mean probability of an event over the test examples, where it is known.
    """

    train: Examples
    held_out: Examples
    test: Examples
    disturbed: Tensor
    event_share: float | None = None


def load(name: str, seed: int) -> Problem:
    """One of `DATA`, split by the seed into a half, a quarter and a quarter, and disturbed."""
    x, y = DATA[name]()
    train, rest = train_test_split(np.arange(len(y)), test_size=0.5, random_state=seed, stratify=y)
    held_out, test = train_test_split(rest, test_size=0.5, random_state=seed, stratify=y[rest])
    inputs, classes = torch.as_tensor(x), torch.as_tensor(y)
    parts = [(inputs[rows], classes[rows]) for rows in (train, held_out, test)]
    return Problem(parts[0], parts[1], parts[2], _disturbed(parts[2][0], parts[0][0], seed))


def _disturbed(x: Tensor, train: Tensor, seed: int) -> Tensor:
    draw = torch.Generator().manual_seed(seed)
    if not x.is_floating_point():
        letters = torch.randint(1, ALPHABET, x.shape, generator=draw)
        return torch.where((torch.rand(x.shape, generator=draw) < TYPOS) & (x > 0), letters, x)
    spread = train.std() if x.dim() == 4 else train.std(0)
    return x + NOISE * spread * torch.randn(x.shape, generator=draw)


def fair() -> tuple[Array, Array]:
    """(6366, 8) answers as they were given, and classes."""
    rows = list(csv.DictReader(io.StringIO(packaged(FAIR).decode())))
    names = [name for name in rows[0] if name != "affairs"]
    x = np.array([[float(row[name]) for name in names] for row in rows], np.float32)
    return x, np.array([float(row["affairs"]) > 0 for row in rows], np.int64)


def penguins() -> tuple[Array, Array]:
    """(342, 4) measurements in millimetres and grams, and species; two penguins were not measured."""
    rows = [row for row in csv.DictReader(io.StringIO(packaged(PENGUINS).decode())) if row["body_mass_g"] != "NA"]
    names = ("bill_length_mm", "bill_depth_mm", "flipper_length_mm", "body_mass_g")
    x = np.array([[float(row[name]) for name in names] for row in rows], np.float32)
    return x, np.unique([row["species"] for row in rows], return_inverse=True)[1].astype(np.int64)


def vowels() -> tuple[Array, Array]:
    """(640, 25, 12) coefficients by time, and speakers."""
    lines = [line for file in VOWELS for line in packaged(file).decode().splitlines() if line[:1] not in "#@"]
    x, y = [], []
    for line in lines:
        *channels, speaker = line.split(":")
        x.append(np.array([channel.split(",") for channel in channels], np.float32).T)
        y.append(int(speaker) - 1)
    return np.stack(x), np.array(y)


def words() -> tuple[Array, Array]:
    """(7500, 12) letters from 1 to 26, and `PARTS_OF_SPEECH`; 1,500 words of each, drawn by a fixed seed."""
    found: dict[str, list[str]] = {part: [] for part in PARTS_OF_SPEECH}
    for line in packaged(LEXICON).decode().splitlines():
        word, _, part = line.partition(" ")
        if part in found and re.fullmatch(f"[a-z]{{3,{WORD_LENGTH}}}", word):
            found[part].append(word)
    draw, each = np.random.default_rng(0), WORDS // len(PARTS_OF_SPEECH)
    chosen = [draw.choice(found[part], each, replace=False) for part in PARTS_OF_SPEECH]
    x = np.zeros((WORDS, WORD_LENGTH), np.int64)
    for row, word in enumerate(np.concatenate(chosen)):
        x[row, : len(word)] = [ord(letter) - ord("a") + 1 for letter in word]
    return x, np.repeat(np.arange(len(PARTS_OF_SPEECH)), each)


def faces() -> tuple[Array, Array]:
    """(200, 1, 25, 25) grey values from 0 to 1; 1 is a face."""
    x = np.load(io.BytesIO(packaged(FACES)), allow_pickle=False)
    return x[:, np.newaxis].astype(np.float32), (np.arange(len(x)) < len(x) // 2).astype(np.int64)


def textures() -> tuple[Array, Array]:
    """(768, 1, 32, 32) grey values from 0 to 1, patches that do not overlap, and photographs."""
    found = []
    for file in TEXTURES:
        picture = np.asarray(Image.open(io.BytesIO(packaged(file))), np.float32) / 255
        across = picture.shape[0] // PATCH
        found.append(picture.reshape(across, PATCH, across, PATCH).swapaxes(1, 2).reshape(-1, 1, PATCH, PATCH))
    return np.concatenate(found), np.repeat(np.arange(len(found)), len(found[0]))


DATA: dict[str, Callable[[], tuple[Array, Array]]] = {
    made.__name__: made for made in (fair, penguins, vowels, words, faces, textures)
}
