"""Run a recipe: fit it, or measure its bundle."""

import contextlib
from pathlib import Path
from typing import Any

import torch

from demur.service.format.files import check_destination, check_writable
from demur.service.inference.predictor import Predictor

from ..config import FitConfig
from ..evaluation.columns import with_level
from ..evaluation.evaluate import Evaluation, evaluate
from ..fit import dry_run, fit_bundle, quiet
from ..job import resolve_device
from ..network.onnx_batch import TRIED, drawn
from ..network.onnx_network import OnnxNetwork, load_onnx
from ..runtime.distributed import environment_context
from ..runtime.progress import silent
from ..selection.registry import check_options
from .from_files import class_names_in, numbered, read_examples
from .load import Recipe, RecipeError, load_recipe
from .look import FOREIGN, HELD_OUT, TRAIN, looked_at
from .progress_bars import Bars
from .words import FILES, RECIPE, in_words

WITHOUT_DATA = "tried with random numbers: --data FILE.npz tries it with examples"


def fit_recipe(recipe: Path | Recipe, out: Path, given: dict[str, Any], restart: bool = False) -> bool:
    """Run a recipe, or the one in a file, with progress bars; `given` replaces fields of its configuration. restart:
    what an interrupted fit has kept is removed first.

    Returns whether this is the process that wrote the bundle: under torchrun the first one shows and writes.
    """
    recipe = _loaded(recipe)
    config = _config(recipe, given)
    check_options(config.selection, config.selection_options)
    check_destination(out)
    check_writable(out)
    resolve_device(config.device)
    names, spec, tokenizer = recipe.class_names, recipe.input_spec, recipe.tokenizer
    with in_words(_words(recipe)):
        data = looked_at(recipe, config, names, spec, tokenizer)
    main = environment_context().is_main
    shown = Bars() if main else None
    if shown is not None:
        shown.say("data and options suit each other; now model() of the recipe")
    model = recipe.model()  # it may train for hours: everything else comes first
    with in_words(_words(recipe)), recipe.running(), shown or contextlib.nullcontext() as bars:
        fit_bundle(
            model,
            data[TRAIN],
            out,
            calibration_loader=data[HELD_OUT],
            foreign_loader=data.get(FOREIGN),
            config=config,
            class_names=names,
            input_spec=spec,
            tokenizer=tokenizer,
            restart=restart,
            progress=bars or silent,
            say=bars.say if bars else quiet,
        )
    return main


def check_file(path: Path, data: Path | None, given: dict[str, Any]) -> list[str]:
    """What a fit of a network in ONNX would begin with, and what it would take, as lines for people; without examples
    of its data, the file is run on random numbers alone."""
    config = FitConfig(**given)
    resolve_device(config.device)
    network = load_onnx(path)
    if data is not None:
        inputs, targets = read_examples(data, network)
        names = class_names_in(targets, network)
        with in_words(FILES):
            return dry_run(network, (inputs, numbered(targets, names, data)), config, class_names=names)
    examples = {name: torch.from_numpy(each) for name, each in drawn(network.body.model, str(path)).items()}
    inputs = examples if len(examples) > 1 else next(iter(examples.values()))
    try:
        return [*dry_run(network, (inputs, _some_targets(network, config)), config), WITHOUT_DATA]
    except (ValueError, RuntimeError) as error:
        raise RecipeError(f"{error}. This was found with random numbers; give examples by --data") from error


def _some_targets(network: OnnxNetwork, config: FitConfig) -> torch.Tensor:
    """Of as many examples as are drawn: each class in turn, or values."""
    outputs = len(network.head.weight)
    if config.likelihood == "classification":
        return torch.arange(TRIED) % max(2, outputs)
    return (torch.arange(TRIED * outputs) % 2).reshape(TRIED, outputs).float()


def check_recipe(path: Path, given: dict[str, Any]) -> list[str]:
    """The same of a recipe."""
    recipe = load_recipe(path)
    config = _config(recipe, given)
    names, spec, tokenizer = recipe.class_names, recipe.input_spec, recipe.tokenizer
    with in_words(_words(recipe)):
        data = looked_at(recipe, config, names, spec, tokenizer)
    with in_words(_words(recipe)), recipe.running():
        return dry_run(
            recipe.model(),
            data[TRAIN],
            config,
            calibration_loader=data[HELD_OUT],
            foreign_loader=data.get(FOREIGN),
            class_names=names,
            input_spec=spec,
            tokenizer=tokenizer,
        )


def _words(recipe: Recipe) -> dict[str, str]:
    return FILES if recipe.path.suffix.lower() == ".onnx" else RECIPE


def _loaded(recipe: Path | Recipe) -> Recipe:
    return recipe if isinstance(recipe, Recipe) else load_recipe(recipe)


def _config(recipe: Recipe, given: dict[str, Any]) -> FitConfig:
    return FitConfig(**{**recipe.config.model_dump(exclude_unset=True), **given})


def evaluate_file(predictor: Predictor, path: Path) -> Evaluation:
    """The same figures on the examples of an .npz file, as `demur fit net.onnx --data` takes them."""
    inputs, targets = read_examples(path)
    known = predictor.manifest.class_names
    return evaluate(
        predictor, (inputs, numbered(targets, known, path)), None, with_level(predictor.decision.policy.interval_level)
    )


def evaluate_recipe(predictor: Predictor, recipe_path: Path) -> Evaluation:
    """The figures of `demur.offline.evaluation.evaluate` on the recipe's test_data() and, where there is one,
    foreign_data().

    Levels are the usual ones and that of the predictor's policy.
    """
    recipe = load_recipe(recipe_path)
    # A fit takes a classification whose targets are several labels as one of labels.
    fitted = {predictor.manifest.task, "classification" if predictor.manifest.task == "multilabel" else ""}
    if recipe.config.likelihood not in fitted:
        raise RecipeError(
            f"{recipe_path}: config.likelihood: found {recipe.config.likelihood!r}, expected "
            f"{predictor.manifest.task!r} as in the bundle {predictor.path}; give the recipe that it was fitted with"
        )
    names, known = recipe.class_names, predictor.manifest.class_names
    if names is not None and known is not None and tuple(names) != known:
        raise RecipeError(
            f"{recipe_path}: class_names: found {list(names)!r:.100}, expected {list(known)!r:.100} as in the bundle "
            f"{predictor.path}; give the recipe that it was fitted with"
        )
    with recipe.running():
        foreign = recipe.data("foreign_data") if recipe.has("foreign_data") else None
        levels = with_level(predictor.decision.policy.interval_level)
        return evaluate(predictor, recipe.data("test_data"), foreign, levels)
