"""A recipe made of files: a network in ONNX, and examples in NumPy's .npz format. Targets may be names of classes."""

import re
import zipfile
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from onnx import TensorProto

from ..network.onnx_network import OnnxNetwork, load_onnx
from .imports import RecipeImports
from .load import Recipe, RecipeError

NPZ = ".npz"
X, Y = "x", "y"
EXPECTED = (
    f"numpy.savez(file, {X}=inputs, {Y}=targets), with the inputs' own names in place of {X} where there are several"
)


def recipe_of_files(network: Path, train: Path | None, held_out: Path | None) -> Recipe:
    """The recipe that has the ONNX file as its model, and these examples.

    Raises `RecipeError` for missing files, and for others than `numpy.savez(file, x=inputs, y=targets)`.
    """
    if train is None or held_out is None:
        missing = "--data" if train is None else "--held-out"
        raise RecipeError(
            f"{missing}: found none, expected an {NPZ} file: of {network.name} both are needed, --data, which it was "
            "trained on, and --held-out, which it was not"
        )
    model = load_onnx(network)
    (x, y), (held_x, held_y) = (read_examples(path, model) for path in (train, held_out))
    names = class_names_in(y, model)
    name = "demur_recipe_of_files"
    module = ModuleType(name)
    vars(module).update(
        model=model,
        train_data=(x, numbered(y, names, train)),
        calibration_data=(held_x, numbered(held_y, names, held_out)),
        class_names=names,
    )
    return Recipe(network, module, RecipeImports(network, name))


def class_names_in(targets: Any, model: OnnxNetwork) -> list[str] | None:
    """The names of classes that the file has, or those of the targets in alphabetical order, as scikit-learn has them;
    None of targets that are numbers."""
    if model.file.class_names:
        return list(model.file.class_names)
    return sorted(set(targets.ravel().tolist())) if targets.dtype.kind == "U" else None


def numbered(targets: Any, names: Sequence[str] | None, path: Path) -> Any:
    """Names of classes as their numbers; other targets as they are. `RecipeError` for a name that is none, and for
    numbers where names are others: which of the two they are could not be told."""
    if names is None:
        return targets
    numbers = all(re.fullmatch("[+-]?[0-9]+", name) for name in names)
    if numbers and list(names) != [*map(str, range(len(names)))] and targets.dtype.kind in "iu":
        raise RecipeError(
            f"{path}: {Y}: found the number {targets.max(initial=0)} where names of classes are numbers, expected the "
            f"names as text, {Y}.astype(str): {', '.join(names)!s:.200}"
        )
    if targets.dtype.kind != "U":
        return targets
    places = {name: place for place, name in enumerate(names)}
    targets = targets.ravel()
    unknown = next((name for name in targets.tolist() if name not in places), None)
    if unknown is not None:
        raise RecipeError(f"{path}: {Y}: found {unknown!r:.80}, expected one of {', '.join(names)!s:.200}")
    return np.array([places[name] for name in targets.tolist()])


def read_examples(path: Path, model: OnnxNetwork | None = None) -> tuple[Any, Any]:
    """Inputs, an array or several by name, and targets; raises `RecipeError` for another file. model: whole numbers and
    truth values in the type that it takes, where a file's own are more than networks of torch have."""
    if not path.is_file():
        raise RecipeError(f"{path}: no such file, expected an {NPZ} file")
    try:
        with zipfile.ZipFile(path):  # np.load reads other formats too
            pass
        with np.load(path, allow_pickle=False) as file:
            found = {key: file[key] for key in file.files}
    except (ValueError, OSError, zipfile.BadZipFile, EOFError) as error:
        reason = " ".join(str(error).split())[:150]
        raise RecipeError(f"{path}: found no {NPZ} file of numbers ({reason}), expected {EXPECTED}") from None
    if Y not in found or len(found) < 2 or not all(each.ndim for each in found.values()):
        raise RecipeError(f"{path}: found the arrays {', '.join(found) or 'none'}, expected {EXPECTED}")
    targets = found.pop(Y)
    kinds = {} if model is None else model.body.kinds
    for name, x in found.items():
        if kinds and x.dtype.kind in "bui":
            taken = kinds.get(name, next(iter(kinds.values())))
            found[name] = x.astype(np.float32 if taken == TensorProto.FLOAT else np.int64)
    return (found[X] if list(found) == [X] else found), targets.astype(str) if targets.dtype.kind == "S" else targets
