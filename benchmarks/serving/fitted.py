"""The bundle that is served, and the folder where it is kept."""

from pathlib import Path

from benchmarks.environment import ROOT
from offline.run import fit_recipe
from service.bundle import MANIFEST

CACHE = ROOT / "benchmarks" / "cache" / "serving"  # not under version control


def bundle() -> Path:
    """The bundle of examples/digits.py, fitted where there is none yet (about a minute)."""
    folder = CACHE / "digits"
    if not (folder / MANIFEST).is_file():
        folder.parent.mkdir(parents=True, exist_ok=True)
        fit_recipe(ROOT / "examples" / "digits.py", folder, {})
    return folder
