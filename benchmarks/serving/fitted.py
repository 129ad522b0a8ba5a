"""The bundles that are served, and the folder where they are kept."""

from pathlib import Path

from benchmarks.core.folders import CACHE, ROOT
from offline.recipes.run import fit_recipe
from service.bundle import MANIFEST

SERVING = CACHE / "serving"


def bundle(example: str = "digits") -> Path:
    """The bundle of a recipe in examples/, fitted where there is none yet (about a minute)."""
    folder = SERVING / example
    if not (folder / MANIFEST).is_file():
        folder.parent.mkdir(parents=True, exist_ok=True)
        fit_recipe(ROOT / "examples" / f"{example}.py", folder, {})
    return folder
