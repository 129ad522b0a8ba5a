"""Invalid requests and the error that each must get, from the application and from a running server alike."""

import json
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from PIL import Image

from tests.support.client import base64_text, encoded, pixel_bomb

GOOD = [0.5, -1.0, 2.0, 0.25]
JSON = {"content-type": "application/json"}


@dataclass(frozen=True)
class Bad:
    """A request and its expected error; `where` must be part of the problem's `field`, if there is one."""

    name: str
    body: Any
    status: int = 422
    code: str = "input"
    where: str | None = None
    headers: dict[str, str] = field(default_factory=lambda: JSON)

    @property
    def content(self) -> bytes:
        if isinstance(self.body, bytes):
            return self.body
        return (self.body if isinstance(self.body, str) else json.dumps(self.body)).encode()


def not_json(name: str, body: bytes | str) -> Bad:
    return Bad(name, body, 400, "json")


def wrong_field(name: str, body: Any, where: str) -> Bad:
    return Bad(name, body, 422, "field", where)


def wrong_type(name: str, where: str, code: str, **headers: str) -> Bad:
    named = {key.replace("_", "-"): value for key, value in headers.items()}
    return Bad(name, {"inputs": GOOD}, 415, code, where, named)


BAD_REQUESTS = [
    # not JSON
    not_json("empty body", b""),
    not_json("text", b"hello"),
    not_json("a form", b"inputs=1&inputs=2"),
    not_json("half", b'{"inputs": [1, 2'),
    not_json("two documents", b'{"inputs": [1, 2, 3, 4]}{}'),
    not_json("trailing comma", b'{"inputs": [1, 2, 3, 4,]}'),
    not_json("single quotes", b"{'inputs': [1, 2, 3, 4]}"),
    not_json("invalid UTF-8", b'{"inputs": ["\xff\xfe"]}'),
    not_json("UTF-16", '{"inputs": [1, 2, 3, 4]}'.encode("utf-16")),
    not_json("a lone surrogate", rb'{"inputs": ["\ud800"]}'),
    not_json("zeros", bytes(100)),
    not_json("deep lists", b'{"inputs": ' + b"[" * 10_000),
    not_json("deep objects", b'{"a":' * 10_000),
    not_json("a number of 5000 digits", b'{"inputs": [' + b"9" * 5000 + b", 2, 3, 4]}"),
    # JSON of another form
    wrong_field("a list", b"[1, 2, 3, 4]", "body"),
    wrong_field("null", b"null", "body"),
    wrong_field("a number", b"1", "body"),
    wrong_field("neither", {}, "body"),
    wrong_field("both null", {"inputs": None, "images": None}, "body"),
    wrong_field("both", {"inputs": GOOD, "images": ["aGVq"]}, "body"),
    wrong_field("an unknown field", {"inputs": GOOD, "colour": "red"}, "colour"),
    wrong_field("a field with a long name", {"inputs": GOOD, "x" * 100_000: 1}, "xxx"),
    wrong_field("inputs twice", b'{"inputs": [1, 2, 3, 4], "inputs": [4, 3, 2, 1]}', "inputs"),
    wrong_field("inputs twice, once escaped", rb'{"inputs": [1, 2, 3, 4], "\u0069nputs": [4, 3, 2, 1]}', "inputs"),
    wrong_field("a lone surrogate twice", rb'{"\ud800": 1, "\ud800": 2}', "\\ud800"),
    wrong_field("a line break twice", rb'{"a\n": 1, "a\n": 2}', "a\\n"),
    Bad("inputs are an object", {"inputs": {"a": 1}}, where="inputs"),
    wrong_field("inputs are a text", {"inputs": "1, 2, 3, 4"}, "inputs"),
    wrong_field("inputs are a number", {"inputs": 1}, "inputs"),
    wrong_field("images are a text", {"images": "aGVq"}, "images"),
    wrong_field("an image is a number", {"images": [1]}, "images"),
    # arrays that the model cannot take
    Bad("no examples", {"inputs": []}, where="inputs"),
    Bad("an empty example", {"inputs": [[]]}, where="inputs"),
    Bad("too few numbers", {"inputs": [1, 2, 3]}, where="inputs"),
    Bad("too many numbers", {"inputs": [[1, 2, 3, 4, 5]]}, where="inputs"),
    Bad("too many dimensions", {"inputs": [[[1, 2, 3, 4]]]}, where="inputs"),
    Bad("ragged", {"inputs": [GOOD, GOOD[:2]]}, where="inputs"),
    Bad("a number among rows", {"inputs": [GOOD, 1]}, where="inputs"),
    Bad("a text", {"inputs": [GOOD, [1, "2", 3, 4]]}, where="inputs[1][1]"),
    Bad("a boolean", {"inputs": [[1, 2, True, 4]]}, where="inputs[0][2]"),
    Bad("booleans only", {"inputs": [[True, True, False, True]]}, where="inputs[0][0]"),
    Bad("null within", {"inputs": [[1, 2, None, 4]]}, where="inputs[0][2]"),
    Bad("an object within", {"inputs": [[1, 2, {"a": 1}, 4]]}, where="inputs[0][2]"),
    Bad("NaN", b'{"inputs": [[1, 2, NaN, 4]]}', where="inputs[0][2]"),
    Bad("Infinity", b'{"inputs": [[1, 2, Infinity, 4]]}', where="inputs[0][2]"),
    Bad("-Infinity", b'{"inputs": [[1, 2, -Infinity, 4]]}', where="inputs[0][2]"),
    Bad("1e999", b'{"inputs": [[1, 2, 1e999, 4]]}', where="inputs[0][2]"),
    Bad("beyond float32", {"inputs": [[1, 2, 1e39, 4]]}, where="inputs[0][2]"),
    Bad("a huge integer", {"inputs": [[1, 2, 10**400, 4]]}, where="inputs[0][2]"),
    Bad("a deep list", b'{"inputs": ' + b"[" * 100 + b"1" + b"]" * 100 + b"}", where="inputs"),
    Bad("a long text among many numbers", {"inputs": ["x" * 100_000, *([1] * 20_000)]}, where="inputs[0]"),
    Bad("images for a model of numbers", {"images": ["aGVq"]}, where="images"),
    Bad("too many rows", {"inputs": [GOOD] * 1025}, 413, "input_too_large", "inputs"),
    Bad("an output that is not finite", {"inputs": [GOOD, [3e38] * 4]}, 422, "non_finite_output", "inputs[1]"),
    # what is not sent as JSON
    wrong_type("text/plain", "Content-Type", "media_type", content_type="text/plain"),
    wrong_type("a form's type", "Content-Type", "media_type", content_type="application/x-www-form-urlencoded"),
    wrong_type("a long type", "Content-Type", "media_type", content_type="x/" + "y" * 5000),
    wrong_type("brotli", "Content-Encoding", "content_encoding", content_encoding="br"),
    wrong_type("two encodings", "Content-Encoding", "content_encoding", content_encoding="gzip, br"),
]


def image_file(kind: str = "PNG") -> bytes:
    """An image of the size that the image bundle takes."""
    return encoded(Image.fromarray(np.arange(20, dtype=np.uint8).reshape(4, 5)), kind)


def odd_metadata() -> bytes:
    """A valid JPEG whose EXIF block claims data beyond its end."""
    exif = Image.Exif()
    exif[0x010E] = "a description that will be cut"
    whole = exif.tobytes()
    return encoded(Image.fromarray(np.arange(20, dtype=np.uint8).reshape(4, 5)), "JPEG", exif=whole[:-20])


def bad_image(name: str, data: bytes | str, status: int = 422, code: str = "input") -> Bad:
    text = data if isinstance(data, str) else base64_text(data)
    return Bad(name, {"images": [base64_text(image_file()), text]}, status, code, "images[1]")


BAD_IMAGE_REQUESTS = [
    Bad("no images", {"images": []}, where="images"),
    bad_image("not base64", "!!!"),
    bad_image("base64 of nothing", ""),
    bad_image("letters beyond ASCII", "é"),
    bad_image("not an image", b"hello"),
    bad_image("a truncated PNG", image_file()[:48]),
    bad_image("a truncated JPEG", image_file("JPEG")[:200]),
    bad_image("a GIF", image_file("GIF")),
    bad_image("a BMP", image_file("BMP")),
    bad_image("a pixel bomb", pixel_bomb(60_000, 60_000), 413, "input_too_large"),
    bad_image("a pixel bomb just over the limit", pixel_bomb(4097, 4096), 413, "input_too_large"),
    Bad("too many images", {"images": [""] * 1025}, 413, "input_too_large", "images"),
    Bad("features for a model of images", {"inputs": [GOOD]}, where="inputs"),
]
