"""JSON in which an object has a name twice: readers disagree which of the two values counts, so it is refused."""

import json
import re
from typing import Any

COLON = re.compile(rb"\s*:")


class NameTwice(ValueError):
    """An object has a name twice; `name`: which."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(f"the name {name!r:.80} twice in one object")


def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The object of these names and values; raises `NameTwice`. For json's `object_pairs_hook`."""
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        raise NameTwice(next(name for name in names if names.count(name) > 1))
    return found


def check_names_once(data: bytes) -> None:
    """Raises `NameTwice`; what is no JSON passes, for its reader to refuse.

    Only where a name stands twice anywhere in the text, or an escape may hide one, it is parsed for this alone.
    """
    pieces = data.split(b'"')  # without escapes, every other one is a string
    names = [name for name, after in zip(pieces[1::2], pieces[2::2], strict=False) if COLON.match(after)]
    if len(set(names)) < len(names) or b"\\" in data:
        try:
            json.loads(data, object_pairs_hook=unique)
        except NameTwice:
            raise
        except (ValueError, RecursionError):
            return
