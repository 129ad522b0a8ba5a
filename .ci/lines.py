"""Count the product's lines: `lines.py [ROOT]`. Ends with status 1 where there are more than `tool.demur.lines` of
pyproject.toml, a number that is lowered by whoever makes the product smaller, and raised only in a commit of its own
that says what for. Every file counts but pages and what is generated or drawn.
"""

import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

FOLDERS = "service", "offline", "demur"
LINKS = {Path("demur/service"), Path("demur/offline")}
LEFT_OUT = {".md", ".json", ".svg", ".pyc", ".typed", ".binpb"}
WIDEST = 200  # characters of a line


def counted(root: Path) -> Iterator[tuple[str, str, int]]:
    """Folder, ending and lines of each file; raises SystemExit where a file cannot be counted."""
    for folder in FOLDERS:
        if not (root / folder).is_dir():
            raise SystemExit(f"{folder}: found no such folder, expected one of the product's")
        for file in (root / folder).rglob("*"):
            name = file.relative_to(root)
            if file.is_symlink() and name not in LINKS:
                raise SystemExit(f"{name}: found a link, behind which nothing is counted; move what it leads to here")
            if file.is_file() and file.suffix not in LEFT_OUT:
                lines = file.read_text().splitlines()
                if any(len(line) > WIDEST for line in lines):
                    raise SystemExit(f"{name}: found a line of more than {WIDEST} characters; break it")
                yield folder, file.suffix, len(lines)


def main(root: Path) -> None:
    """Print the lines of each folder and of each kind, and compare their sum with the limit."""
    by_folder, by_kind = Counter[str](), Counter[str]()
    for folder, kind, lines in counted(root):
        by_folder[folder] += lines
        by_kind[kind] += lines
    limit = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["demur"]["lines"]
    total = by_folder.total()
    parts = (", ".join(f"{name} {count:,}" for name, count in sorted(each.items())) for each in (by_folder, by_kind))
    print(f"product: {total:,} lines of at most {limit:,} ({'; '.join(parts)})")
    if total > limit:
        raise SystemExit(
            f"pyproject.toml: tool.demur.lines: found {total:,} lines, expected at most {limit:,}: take away what "
            f"the new ones replace, or raise the limit in a commit of its own that says what for"
        )


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "."))
