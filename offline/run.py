"""Run a recipe: fit it, or measure its bundle. Shared by the command line and the demo."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any, TypeVar

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from offline.config import FitConfig
from offline.console import console
from offline.evaluate import evaluate
from offline.fit import fit_bundle
from offline.recipe import load_recipe
from service.predictor import Predictor

T = TypeVar("T")


def fit_recipe(recipe_path: Path, out: Path, given: dict[str, Any]) -> Path:
    """Run a recipe with progress bars; `given` replaces fields of its configuration."""
    recipe = load_recipe(recipe_path)
    config = FitConfig.model_validate({**recipe.config.model_dump(), **given})
    model, train, held_out = recipe.model(), recipe.data("train_data"), recipe.data("calibration_data")
    with Bars() as bars:
        return fit_bundle(
            model,
            train,
            out,
            calibration_loader=held_out,
            config=config,
            class_names=recipe.class_names,
            input_spec=recipe.input_spec,
            progress=bars,
        )


def evaluate_recipe(bundle: Path, recipe_path: Path) -> dict[str, float]:
    """The metrics of `offline.evaluate` on the recipe's test_data() and, if it has one, ood_data()."""
    recipe = load_recipe(recipe_path)
    foreign = recipe.data("ood_data") if recipe.has("ood_data") else None
    return evaluate(Predictor.load(bundle), recipe.data("test_data"), foreign)


class Bars:
    """Progress bars with elapsed and remaining time, one a loop; a `Track` while the context is open."""

    def __init__(self) -> None:
        columns = (TextColumn("{task.description:<18}"), BarColumn(), MofNCompleteColumn())
        self._progress = Progress(*columns, TimeElapsedColumn(), TimeRemainingColumn(), console=console())

    def __enter__(self) -> "Bars":
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def __call__(self, items: Iterable[T], description: str, total: int | None = None) -> Iterable[T]:
        task = self._progress.add_task(description, total=total)
        for item in items:
            yield item
            self._progress.advance(task)
