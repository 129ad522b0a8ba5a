"""Make the relative links of pages absolute: `links.py LINKS FILE ...`, in place. LINKS: what they begin with."""

import re
import sys
from pathlib import Path

RELATIVE = re.compile(r"(?<=\]\()(?![a-z]+:|#)([^)\s]+)(?=\))")


def absolute(text: str, links: str) -> str:
    """A page of the checkout as one that stands elsewhere; pictures come raw."""
    return RELATIVE.sub(lambda found: f"{links}/{found[1]}{'?raw=true' if found[1].endswith('.png') else ''}", text)


if __name__ == "__main__":
    for name in sys.argv[2:]:
        Path(name).write_text(absolute(Path(name).read_text(), sys.argv[1]))
