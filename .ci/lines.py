"""Count the product's lines: `lines.py [ROOT]`. Ends with status 1 where there are more than `tool.demur.lines` of
pyproject.toml, a number that is lowered by whoever makes the product smaller, and raised only in a commit of its own
that says what for. Pages and what is generated do not count.
"""

import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

FOLDERS = "service", "offline", "demur"
KINDS = {".py": "Python", ".js": "JavaScript", ".html": "templates and styles", ".css": "templates and styles"}


def counted(root: Path) -> Iterator[tuple[str, str, int]]:
    """Folder, kind and lines of each file; links to other folders are not followed."""
    for folder in FOLDERS:
        for file in (root / folder).rglob("*"):
            if file.suffix in KINDS and file.is_file():
                yield folder, KINDS[file.suffix], len(file.read_text().splitlines())


def main(root: Path) -> None:
    """Print the lines of each folder and of each kind, and compare their sum with the limit."""
    by_folder, by_kind = Counter[str](), Counter[str]()
    for folder, kind, lines in counted(root):
        by_folder[folder] += lines
        by_kind[kind] += lines
    limit = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["demur"]["lines"]
    total = by_folder.total()
    parts = (", ".join(f"{name} {count:,}" for name, count in counts.items()) for counts in (by_folder, by_kind))
    print(f"product: {total:,} lines of at most {limit:,} ({'; '.join(parts)})")
    if total > limit:
        raise SystemExit(
            f"pyproject.toml: tool.demur.lines: found {total:,} lines, expected at most {limit:,}: take away what "
            f"the new ones replace, or raise the limit in a commit of its own that says what for"
        )


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "."))
