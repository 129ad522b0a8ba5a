"""Generated parts of pages: the lines between `<!-- NAME -->` and `<!-- end of NAME -->`."""

import re
from pathlib import Path


def replace_part(text: str, name: str, content: str) -> str:
    """`text` with `content` between the marks of `name`; `ValueError` unless each mark stands there once."""
    start, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
    if text.count(start) != 1 or text.count(end) != 1:
        raise ValueError(f"found no single pair of {start} and {end}, expected one; put the marks back into the page")
    pattern = re.compile(f"(?<={re.escape(start)}\n).*?(?={re.escape(end)})", re.DOTALL)
    return pattern.sub(lambda _: content.rstrip("\n") + "\n", text)


def update_parts(page: Path, parts: dict[str, str]) -> None:
    """Write every part, by name, into the page."""
    text = page.read_text()
    for name, content in parts.items():
        text = replace_part(text, name, content)
    page.write_text(text)
