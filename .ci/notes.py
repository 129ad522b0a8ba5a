"""Print the changelog's notes of a release: `notes.py TAG [ROOT]`. Ends with status 1 where the tag, the version in
pyproject.toml and a dated section of CHANGELOG.md do not agree.
"""

import re
import sys
import tomllib
from pathlib import Path

HEADING = re.compile(r"^## (?P<version>\S+) \((?P<date>[^)]*)\)$", re.MULTILINE)


def notes(tag: str, root: Path) -> str:
    """The section of the version `tag` names, without its heading; raises SystemExit where there is none to publish."""
    version = tomllib.loads((root / "pyproject.toml").read_text())["project"]["version"]
    if tag != f"v{version}":
        raise SystemExit(f"tag: found {tag}, expected v{version}, of pyproject.toml's version; set it, or tag anew")
    text = (root / "CHANGELOG.md").read_text()
    headings = [*HEADING.finditer(text)]
    for heading, following in zip(headings, [*headings[1:], None], strict=True):
        if heading["version"] == version:
            if not re.fullmatch(r"\d{4}-\d\d-\d\d", heading["date"]):
                raise SystemExit(f"CHANGELOG.md: found {heading[0]!r}, expected the date of the release in brackets")
            return text[heading.end() : following.start() if following else None].strip() + "\n"
    raise SystemExit(f"CHANGELOG.md: found no section of {version}, expected '## {version} (YYYY-MM-DD)'")


if __name__ == "__main__":
    print(notes(sys.argv[1], Path(sys.argv[2] if len(sys.argv) > 2 else ".")), end="")
