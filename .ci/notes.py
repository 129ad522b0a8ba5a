"""Print the changelog's notes of a release: `notes.py TAG [ROOT]`. Ends with status 1 where the tag, the version in
pyproject.toml and one dated section of CHANGELOG.md do not agree.
"""

import re
import sys
import tomllib
from datetime import date
from pathlib import Path

HEADING = re.compile(r"^## (?P<version>\S+) \((?P<date>[^)]*)\)$")


def notes(tag: str, root: Path) -> str:
    """The section of the version `tag` names, without its heading; raises SystemExit where there is none to publish."""
    version = tomllib.loads((root / "pyproject.toml").read_text())["project"]["version"]
    if tag != f"v{version}":
        raise SystemExit(f"tag: found {tag}, expected v{version}, of pyproject.toml's version; set it, or tag anew")
    sections = re.split(r"^(?=## )", (root / "CHANGELOG.md").read_text(), flags=re.MULTILINE)
    found = [section for section in sections if section.split(maxsplit=2)[1:2] == [version]]
    expected = f"one section '## {version} (YYYY-MM-DD)' that says something"
    if len(found) != 1:
        raise SystemExit(f"CHANGELOG.md: found {len(found)} sections of {version}, expected {expected}")
    heading, _, text = found[0].partition("\n")
    try:
        date.fromisoformat((HEADING.match(heading) or {"date": ""})["date"])
    except ValueError:
        raise SystemExit(f"CHANGELOG.md: found {heading!r}, expected {expected}") from None
    if not text.strip():
        raise SystemExit(f"CHANGELOG.md: found nothing below {heading!r}, expected {expected}")
    return text.strip() + "\n"


if __name__ == "__main__":
    print(notes(sys.argv[1], Path(sys.argv[2] if len(sys.argv) > 2 else ".")), end="")
