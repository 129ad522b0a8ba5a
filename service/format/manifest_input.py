"""What a network takes: the part of a manifest that describes its inputs. Pure standard library."""

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

from .rules import ManifestError, Part, check_fields

# Numbers of preprocessing stay far from where float32 overflows.
LARGEST, SMALLEST = 1e30, 1e-30
# NumPy has at most 32 dimensions before its version 2, and one is the batch's; entries: 1 GiB of float32 an example.
MAX_DIMENSIONS, MAX_ENTRIES = 31, 2**28
MAX_TYPICAL = 20
MAX_SIDE = 2**14  # pixels of an image before its middle is cut out
Interpolation = Literal["nearest", "bilinear", "bicubic", "lanczos"]
MAX_NAME = 100  # characters of the name of an input
TokenKind = Literal["ids", "mask", "types"]


@dataclass(frozen=True)
class ImagePreprocessing(Part):
    """How a decoded image becomes one input: `(pixel * scale - mean) / std`, channels first.

    `mode` is Pillow's name of the colour space (one or three channels); `resize` allows images of another
    size to be scaled, otherwise they are refused: to the input's height and width, or to `resize_to`, of whose middle
    the input's height and width are cut. (s,) is the length of the shorter side, which keeps the proportions, (h, w)
    the height and width. `interpolation`: null is bilinear; all take the mean where images become smaller.
    """

    left_out: ClassVar[frozenset[str]] = frozenset({"resize_to", "interpolation"})

    mode: Literal["L", "RGB"] = "L"
    scale: float = 1.0 / 255.0
    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)
    resize: bool = True
    resize_to: tuple[int, ...] | None = None
    interpolation: Interpolation | None = None


@dataclass(frozen=True)
class InputRange(Part):
    """The smallest and the largest values that the fit met: of all entries, or of each place on the input's first axis
    (a feature, or a channel)."""

    low: tuple[float, ...]
    high: tuple[float, ...]

    def __post_init__(self) -> None:
        values = (*self.low, *self.high)
        ordered = len(self.low) == len(self.high) >= 1 and all(a <= b for a, b in zip(self.low, self.high, strict=True))
        check_fields(
            "input.range",
            self,
            ("low", all(abs(value) <= LARGEST for value in values), f"numbers of at most {LARGEST:g}, also in high"),
            ("low", ordered, "at least one number, none above the one at its place in high"),
        )


@dataclass(frozen=True)
class InputText(Part):
    """Texts become whole numbers by the bundle's tokenizer.json, cut and filled to the length of the input.

    takes: what each input holds, in the order of the input's parts: the numbers of the tokens, 1 where there is one and
    0 where the rest is filled, or which segment a token belongs to.
    """

    takes: tuple[TokenKind, ...]


@dataclass(frozen=True)
class InputPart(Part):
    """One of several inputs: its name, the shape of ONE example, and what its values are."""

    name: str
    shape: tuple[int, ...]
    dtype: Literal["float32", "int64", "bool"] = "float32"

    @property
    def size(self) -> int:
        """Entries of an example."""
        return math.prod(self.shape)

    @property
    def alone(self) -> "InputSpec":
        """As if it were the only input; truth values as whole numbers."""
        return InputSpec(self.shape, "float32" if self.dtype == "float32" else "int64")


@dataclass(frozen=True)
class InputSpec(Part):
    """What the network takes: the shape of ONE example (no batch dimension) and how to obtain it.

    `feature_names` labels the entries of a flat input for people; `image` is present where the service may
    decode images, and then `shape` is (channels, height, width). `range` is what values to expect, where that is known.
    `parts`: of a network with several inputs, whose entries in this order are the one float32 input of the graph.
    `typical`: a few rows of a flat input for people to begin with. `text`: present where the bundle has a tokenizer;
    the input, or each of its parts, then holds whole numbers, one a token.
    """

    left_out: ClassVar[frozenset[str]] = frozenset({"parts", "typical", "text"})

    shape: tuple[int, ...]
    dtype: Literal["float32", "int64"] = "float32"
    feature_names: tuple[str, ...] | None = None
    image: ImagePreprocessing | None = None
    range: InputRange | None = None
    parts: tuple[InputPart, ...] | None = None
    typical: tuple[tuple[float, ...], ...] | None = None
    text: InputText | None = None

    def __post_init__(self) -> None:
        self._check_shape()
        self._check_feature_names()
        if self.parts is not None:
            self._check_parts(self.parts)
        if self.range is not None and len(self.range.low) not in (1, *self.shape[:1]):
            raise ManifestError(
                f"input.range: found {len(self.range.low)} values, expected 1, or one for each place on the first axis "
                f"of shape {self.shape}"
            )
        if self.range is not None and self.dtype != "float32":
            raise ManifestError(f"input.range: found one for the dtype {self.dtype!r}, expected null")
        if self.image is not None:
            self._check_image(self.image)
        if self.typical is not None:
            self._check_typical(self.typical)
        if self.text is not None:
            self._check_text(self.text)

    @property
    def pieces(self) -> tuple[InputPart, ...]:
        """The parts; of a single input, that one, without a name."""
        return self.parts or (InputPart("", self.shape, self.dtype),)

    def _check_shape(self) -> None:
        if not isinstance(self.shape, tuple | list) or not all(isinstance(size, int) for size in self.shape):
            raise ManifestError(f"input.shape: found {self.shape!r:.100}, expected whole numbers such as (3, 32, 32)")
        if any(size < 1 for size in self.shape):
            raise ManifestError(f"input.shape: found {self.shape!s:.200}, expected sizes of at least 1")
        if len(self.shape) > MAX_DIMENSIONS:
            raise ManifestError(f"input.shape: found {len(self.shape)} dimensions, expected at most {MAX_DIMENSIONS}")
        if math.prod(self.shape) > MAX_ENTRIES:
            raise ManifestError(f"input.shape: found {self.shape}, expected at most {MAX_ENTRIES} entries")

    def _check_parts(self, parts: tuple[InputPart, ...]) -> None:
        names = [part.name for part in parts]
        if not names or len(set(names)) < len(names) or not all(0 < len(name) <= MAX_NAME for name in names):
            raise ManifestError(
                f"input.parts: found the names {names!s:.200}, expected at least one, all different, of 1 to "
                f"{MAX_NAME} characters"
            )
        if any(size < 1 for part in parts for size in part.shape):
            raise ManifestError(f"input.parts: found {parts!s:.200}, expected sizes of at least 1")
        if self.shape != (sum(part.size for part in parts),) or self.dtype != "float32":
            raise ManifestError(
                f"input.shape: found {self.shape} {self.dtype}, expected float32 and the size of all parts, "
                f"{sum(part.size for part in parts)}"
            )
        if self.image is not None or self.feature_names is not None:
            raise ManifestError("input.parts: found an image or feature names beside them, expected null for both")

    def _check_feature_names(self) -> None:
        if self.feature_names is not None and (len(self.feature_names),) != self.shape:
            raise ManifestError(
                f"input.feature_names: found {len(self.feature_names)} names, expected a flat input of as many "
                f"entries, found shape {self.shape}"
            )
        if self.feature_names is not None and len(set(self.feature_names)) < len(self.feature_names):
            raise ManifestError(f"input.feature_names: found {self.feature_names!s:.200}, expected names that differ")

    def _check_typical(self, rows: tuple[tuple[float, ...], ...]) -> None:
        if (
            self.dtype != "float32"
            or not 0 < len(rows) <= MAX_TYPICAL
            or any((len(row),) != self.shape for row in rows)
        ):
            raise ManifestError(
                f"input.typical: found {len(rows)} rows with {sorted({len(row) for row in rows})!s:.100} numbers, "
                f"expected 1 to {MAX_TYPICAL} rows of a flat float32 input; the shape is {self.shape} {self.dtype}"
            )
        if any(not abs(value) <= LARGEST for row in rows for value in row):
            raise ManifestError(f"input.typical: found other values, expected numbers of at most {LARGEST:g}")

    def _check_text(self, text: InputText) -> None:
        pieces = self.pieces
        if len(text.takes) != len(pieces) or "ids" not in text.takes or len(set(text.takes)) < len(text.takes):
            raise ManifestError(
                f"input.text.takes: found {text.takes!s:.200}, expected one for each of {len(pieces)} inputs, no two "
                "alike, and 'ids' among them"
            )
        shapes = {(piece.shape, piece.dtype) for piece in pieces}
        if len(shapes) > 1 or len(pieces[0].shape) != 1 or pieces[0].dtype != "int64":
            raise ManifestError(
                f"input.text: found inputs of {sorted(map(str, shapes))!s:.200}, expected int64 and one length"
            )

    def _check_image(self, image: ImagePreprocessing) -> None:
        channels = 1 if image.mode == "L" else 3
        if len(self.shape) != 3 or self.shape[0] != channels:
            raise ManifestError(
                f"input.image.mode: found {image.mode!r} with input shape {self.shape}, expected "
                f"({channels}, height, width)"
            )
        if self.dtype != "float32":
            raise ManifestError(f"input.dtype: found {self.dtype!r}, expected 'float32' for images")
        _check_numbers(image)
        if image.resize_to is not None:
            _check_resize_to(image, self.shape)
        for name, values in (("mean", image.mean), ("std", image.std)):
            if len(values) not in (1, channels):
                raise ManifestError(f"input.image.{name}: found {len(values)} values, expected 1 or {channels}")
        if any(not SMALLEST <= value <= LARGEST for value in image.std):
            raise ManifestError(f"input.image.std: found {image.std}, expected positive values")
        if any(abs(value) > LARGEST for value in (*image.mean, image.scale)):
            raise ManifestError(
                f"input.image: found mean {image.mean} and scale {image.scale}, expected at most {LARGEST:g}"
            )


def _check_resize_to(image: ImagePreprocessing, shape: tuple[int, ...]) -> None:
    """One or two whole numbers, from which the input's height and width can be cut."""
    found, size = image.resize_to, shape[1:]
    whole = isinstance(found, tuple | list) and all(type(number) is int for number in found)
    if not whole or len(found or ()) not in (1, 2) or not image.resize:
        raise ManifestError(
            f"input.image.resize_to: found {found!r:.100}, expected null, or with resize the length of the shorter "
            "side, (s,), or height and width, (h, w)"
        )
    least = size if len(found or ()) == 2 else (max(size),)
    if not all(a <= b <= MAX_SIDE for a, b in zip(least, found or (), strict=True)):
        raise ManifestError(
            f"input.image.resize_to: found {found}, expected at least {least}, of which {size} is cut, and at most "
            f"{MAX_SIDE}"
        )


def _check_numbers(image: ImagePreprocessing) -> None:
    if not isinstance(image.scale, float | int):
        raise ManifestError(f"input.image.scale: found {image.scale!r:.100}, expected a number such as 1 / 255")
    for name, values in (("mean", image.mean), ("std", image.std)):
        if not isinstance(values, tuple | list) or not all(isinstance(value, float | int) for value in values):
            raise ManifestError(f"input.image.{name}: found {values!r:.100}, expected numbers such as (0.5,)")
