"""Make untrusted text safe to show in a log, a terminal or a metric's label."""


def printable(text: str) -> str:
    """`text` on one line, with control characters, unusual spaces and bytes that are not UTF-8 as escapes."""
    return text if text.isprintable() else "".join(c if c.isprintable() else _escape(c) for c in text)


def _escape(character: str) -> str:
    return character.encode("ascii", "backslashreplace").decode() if ord(character) > 0x7F else repr(character)[1:-1]
