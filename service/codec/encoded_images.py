"""Encoded images of a request: decoded at once where that is cheap, otherwise by a decoder process."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from ..format.manifest_input import InputSpec
from .arrays import Array, InputLimits
from .forms import files_of
from .image_cost import is_cheap
from .images import array_from_files, array_from_images, decode_base64

# Up to this size, decoding takes less time than a change of processes.
CHEAP_BYTES, CHEAP_PIXELS = 4 * 2**10, 64 * 64


@dataclass(frozen=True)
class ImageFiles:
    """Encoded image files; `field` is their name in errors."""

    files: Sequence[bytes]
    field: str
    plural: ClassVar[str] = "images"

    @property
    def size(self) -> int:
        """Bytes."""
        return sum(map(len, self.files))

    def cheap(self, max_files: int) -> bool:
        """Whether their headers bound what decoding them takes."""
        return len(self.files) <= max_files and self.size <= CHEAP_BYTES and all(map(is_cheap, self.files))

    def array(self, spec: InputSpec, limits: InputLimits) -> Array:
        """(B, C, H, W) float32; raises `InputError`."""
        return array_from_files(self.files, spec, limits, self.field)


@dataclass(frozen=True)
class ImageTexts:
    """Base64 texts of image files; `field` is their name in errors."""

    texts: Sequence[str]
    field: str
    plural: ClassVar[str] = "images"

    @property
    def size(self) -> int:
        """Characters."""
        return sum(map(len, self.texts))

    def cheap(self, max_files: int) -> bool:
        """Whether the files' headers bound what decoding them takes; raises `InputError`."""
        if len(self.texts) > max_files or self.size > CHEAP_BYTES:
            return False
        return all(is_cheap(decode_base64(text, f"{self.field}[{i}]")) for i, text in enumerate(self.texts))

    def array(self, spec: InputSpec, limits: InputLimits) -> Array:
        """(B, C, H, W) float32; raises `InputError`."""
        return array_from_images(self.texts, spec, limits, self.field)


@dataclass(frozen=True)
class Form:
    """The body of a form, with its content type."""

    content_type: str
    body: bytes
    field: str = "files"
    plural: ClassVar[str] = "images"

    @property
    def size(self) -> int:
        """Bytes."""
        return len(self.body)

    def cheap(self, max_files: int) -> bool:
        """Whether the files' headers bound what decoding them takes; raises what `array` raises."""
        return self.size <= CHEAP_BYTES and all(map(is_cheap, files_of(self.content_type, self.body, max_files)))

    def array(self, spec: InputSpec, limits: InputLimits) -> Array:
        """(B, C, H, W) float32; raises `FormError`, `FormFieldError` and `InputError`."""
        return array_from_files(files_of(self.content_type, self.body, limits.rows(spec)), spec, limits, self.field)


EncodedImages = ImageFiles | ImageTexts | Form
