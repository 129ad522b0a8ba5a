"""Docstrings, which are plain text, for Sphinx, which reads reStructuredText."""

import re
from typing import Any

SPECIAL = re.compile(r"([\\*|_])")


def as_restructured_text(_app: Any, _kind: str, _name: str, _object: Any, _options: Any, lines: list[str]) -> None:
    """In place: what is between backquotes is code, indented lines are verbatim, nothing else is markup."""
    made: list[str] = []
    verbatim = False
    for line in lines:
        indented = line.startswith(("    ", ">>> "))
        if indented and not verbatim:
            made += ["::", ""] if not made or not made[-1].strip() else ["", "::", ""]
        elif verbatim and line.strip() and made[-1].strip() and not indented:
            made.append("")
        verbatim = indented or (verbatim and not line.strip())
        bullet = "* " if line.startswith("* ") else ""
        verbatim_line = f"    {line}" if line.startswith(">>> ") else line
        made.append(verbatim_line if indented else bullet + _escaped(line.removeprefix(bullet)))
    lines[:] = made


def _escaped(line: str) -> str:
    parts = line.split("`")
    if len(parts) % 2 == 0:  # code that goes on in the next line
        return SPECIAL.sub(r"\\\1", line).replace("`", "")
    return "".join(f"``{part}``" if i % 2 else SPECIAL.sub(r"\\\1", part) for i, part in enumerate(parts))
