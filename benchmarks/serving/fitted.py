"""The bundles that are served, and the folder where they are kept."""

from pathlib import Path

from benchmarks.core.folders import CACHE, ROOT
from demur.offline.recipes.run import fit_recipe
from demur.service.bundle import MANIFEST

SERVING = CACHE / "serving"


def bundle(example: str = "digits") -> Path:
    """The bundle of a recipe in examples/, fitted where there is none of the present code yet (about a minute)."""
    folder, recipe = SERVING / example, ROOT / "examples" / f"{example}.py"
    sources = [recipe, *(ROOT / "offline").rglob("*.py")]
    made = folder / MANIFEST
    if not made.is_file() or made.stat().st_mtime < max(path.stat().st_mtime for path in sources):
        folder.parent.mkdir(parents=True, exist_ok=True)
        fit_recipe(recipe, folder, {})
    return folder
