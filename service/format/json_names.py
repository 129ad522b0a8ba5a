"""JSON in which an object has a name twice: readers disagree which of the two values counts, so it is refused."""

import json
import re
from collections import Counter
from typing import Any

from .text import printable

STRING = re.compile(rb'"([^"]*)"(\s*:)?')  # in a text without escapes


class NameTwice(ValueError):
    """An object has a name twice; `name`: which."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(f"the name {name!r:.80} twice in one object")


def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The object of these names and values; raises `NameTwice`. For json's `object_pairs_hook`."""
    found = dict(pairs)
    if len(found) != len(pairs):
        raise NameTwice(Counter(name for name, _ in pairs).most_common(1)[0][0])
    return found


def check_names_once(data: bytes) -> None:
    """Raises `NameTwice`; what is no JSON passes, for its reader to refuse.

    Only where a name stands twice anywhere in the text (as in rows that are objects), or an escape may hide one, it is
    parsed for this alone.
    """
    seen, again = set[bytes](), b"\\" in data
    for string in () if again or data.count(b'"') < 4 else STRING.finditer(data):
        if string[2] is not None:
            again = string[1] in seen
            if again:
                break
            seen.add(string[1])
    if again:
        try:
            json.loads(data, object_pairs_hook=unique)
        except NameTwice as error:
            raise NameTwice(printable(error.name)) from None
        except (ValueError, RecursionError):
            return
