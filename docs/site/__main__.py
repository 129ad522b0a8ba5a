"""`python -m docs.site OUT`: build the site; every warning is an error."""

import shutil
import sys
import tempfile
from pathlib import Path

from sphinx.cmd.build import build_main

from docs.site.reference import write

ROOT = Path(__file__).parents[2]
# What the pages link to. Copies: links of the file system would be followed to where Sphinx knows no pages.
LINKED = ("docs", "service", "offline", "examples", "deploy", "benchmarks", "paper")
PAGES = ("*.md", "tests/*.md", "LICENSE")
BUNDLE = ROOT / "tests/golden/v1/bundle"


def build(out: Path) -> int:
    """The exit status of Sphinx."""
    with tempfile.TemporaryDirectory() as scratch:
        source = Path(scratch) / "source"
        source.mkdir()
        for name in LINKED:
            shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__", "cache"))
        for page in (page for pattern in PAGES for page in ROOT.glob(pattern)):
            (source / page.relative_to(ROOT)).parent.mkdir(exist_ok=True)
            shutil.copy(page, source / page.relative_to(ROOT))
        write(source / "reference", BUNDLE)
        options = ["--quiet", "--fail-on-warning", "--keep-going", "--doctree-dir", f"{scratch}/doctrees"]
        out.mkdir(parents=True, exist_ok=True)
        (out / "index.html").write_text('<!doctype html><meta http-equiv="refresh" content="0; url=docs/index.html">')
        return build_main([*options, "--conf-dir", f"{ROOT / 'docs/site'}", f"{source}", f"{out}"])


if __name__ == "__main__":
    sys.exit(build(Path(sys.argv[1])))
