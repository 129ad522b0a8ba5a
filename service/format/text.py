"""Untrusted text: made safe to show in a log, a terminal or a metric's label, and compared with what was expected."""

import difflib
from collections.abc import Iterable


def printable(text: str) -> str:
    """`text` on one line, with control characters, unusual spaces and bytes that are not UTF-8 as escapes."""
    return text if text.isprintable() else "".join(c if c.isprintable() else _escape(c) for c in text)


def is_segment(text: str) -> bool:
    """Whether `text` may be one part of a URL's path and of a folder's: neither empty nor one that leads elsewhere."""
    return "/" not in text and text not in ("", ".", "..")


def checked_segment(text: str) -> str:
    """`text`; raises `ValueError` where it is none."""
    if not is_segment(text):
        raise ValueError(f"found {text!r:.100}, expected no '/', and neither '.' nor '..'")
    return text


def suggestion(name: str, known: Iterable[str]) -> str:
    """ " (did you mean 'x'?)" with the known name that is nearest, upper and lower case alike; empty without one."""
    by_case = {each.lower(): each for each in known if each != name}
    near = difflib.get_close_matches(name.lower(), by_case, 1)
    return f" (did you mean {by_case[near[0]]!r:.80}?)" if near else ""


def _escape(character: str) -> str:
    return character.encode("ascii", "backslashreplace").decode() if ord(character) > 0x7F else repr(character)[1:-1]
