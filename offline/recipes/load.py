"""A recipe: the plain Python file in which a user says what to fit. It may import the modules beside it.

It defines `model()`, `train_data()` and `calibration_data()`, and may define `test_data()`, `foreign_data()`,
`config` (a `FitConfig`), `class_names`, `input_spec` and `tokenizer`; each a function, or the value itself. Data are
what `fit_bundle` takes. A relative path of a model is looked for beside the recipe first.
"""

import difflib
import importlib.util
import inspect
import sys
import zlib
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from torch import nn

from demur.service.bundle import InputSpec
from demur.service.format.text import suggestion

from ..config import FitConfig
from ..data.description import listed_names
from ..network.given_network import network_of
from .imports import RecipeImports

READ = (
    "model",
    "train_data",
    "calibration_data",
    "test_data",
    "foreign_data",
    "config",
    "class_names",
    "input_spec",
    "tokenizer",
)
EARLIER = ("ood_data", "score_data")  # of "foreign_data"
ALIKE = 0.85  # how much two names are, by difflib


class RecipeError(ValueError):
    """The recipe cannot be loaded, or lacks a function."""


@dataclass(frozen=True)
class Recipe:
    """A loaded recipe; its functions are called when asked for."""

    path: Path
    module: ModuleType
    imports: RecipeImports

    def running(self) -> AbstractContextManager[None]:
        """Hold this open while code of the recipe may run: reading its data, or calling its model.

        Modules beside the recipe that are imported late are found then.
        """
        return self.imports.active()

    @property
    def config(self) -> FitConfig:
        config = self._optional("config", FitConfig())
        if not isinstance(config, FitConfig):
            raise RecipeError(f"{self.path}: config: found {type(config).__name__}, expected a FitConfig")
        return config

    @property
    def class_names(self) -> Sequence[str] | None:
        names = self._optional("class_names", None)
        try:
            return None if names is None else listed_names(names)
        except ValueError as error:
            raise RecipeError(f"{self.path}: {error}") from None

    @property
    def input_spec(self) -> InputSpec | None:
        spec = self._optional("input_spec", None)
        if spec is not None and not isinstance(spec, InputSpec):
            raise RecipeError(f"{self.path}: input_spec: found {type(spec).__name__}, expected an InputSpec")
        return spec

    @property
    def tokenizer(self) -> Any:
        """What makes tokens of texts, or None. One of transformers is itself a function, and is not called."""
        found = getattr(self.module, "tokenizer", None)
        if not inspect.isroutine(found):
            return found
        with self.running():
            return found()

    def model(self) -> nn.Module:
        found = self._call("model")
        if isinstance(found, str | Path) and (self.path.parent / found).is_file():
            found = self.path.parent / found
        try:
            return network_of(found, f"{self.path}: model()")
        except TypeError as error:
            raise RecipeError(str(error)) from None

    def data(self, name: str) -> Any:
        """What `train_data`, `calibration_data`, `test_data` or `foreign_data` returns, or is."""
        return self._call(name)

    def check_names(self) -> None:
        """`RecipeError` for a name of the recipe's own that is nearly one that a fit reads, and stands in its place."""
        for name in self._own:
            near = difflib.get_close_matches(name.lower(), READ, 1, cutoff=ALIKE)
            near = ["foreign_data"] if name in EARLIER else near
            if near and name not in READ and not self.has(near[0]):
                raise RecipeError(f"{self.path}: found {name}, which nothing reads; did you mean {near[0]}?")

    @property
    def _own(self) -> list[str]:
        """Public names that the recipe defines rather than imports."""
        ours = self.module.__name__
        return [name for name, value in vars(self.module).items() if not name.startswith("_") and _is_own(value, ours)]

    def has(self, name: str) -> bool:
        return hasattr(self.module, name)

    def _call(self, name: str) -> Any:
        found = getattr(self.module, name, None)
        if found is None:
            hint = suggestion(name, [own for own in self._own if own not in READ])
            raise RecipeError(
                f"{self.path}: found no function {name}(){hint}, expected one; demur new writes a recipe with all"
            )
        if isinstance(found, nn.Module) or not callable(found):
            return found
        with self.running():
            return found()

    def _optional(self, name: str, default: Any) -> Any:
        """A constant, or a function that returns it."""
        value = getattr(self.module, name, default)
        if not callable(value) or isinstance(value, type):
            return value
        with self.running():
            return value()


def load_recipe(path: Path) -> Recipe:
    """Run the recipe file, which may import the modules beside it. Whatever its code raises is passed on as it is.

    It is the user's own code: only run recipes you trust.
    """
    if not path.is_file():
        raise RecipeError(f"{path}: no such file, expected a recipe (a Python file with model() and train_data())")
    name = f"demur_recipe_{path.stem}_{zlib.crc32(bytes(path.resolve())):08x}"  # another folder's may be called alike
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise RecipeError(f"{path}: found a file that is not Python, expected a name that ends in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # forked processes of data loaders look classes up by module name
    imports = RecipeImports(path, name)
    with imports.active():
        try:
            spec.loader.exec_module(module)
        except SyntaxError as error:
            if error.filename:
                raise
            raise RecipeError(f"{path}: found no Python source ({error.msg}), expected text") from None
    recipe = Recipe(path, module, imports)
    recipe.check_names()
    return recipe


def _is_own(value: object, module: str) -> bool:
    """Whether a recipe of this module name defines the value: functions and classes say where they are from."""
    if inspect.ismodule(value):
        return False
    imported = inspect.isroutine(value) or inspect.isclass(value)
    return not imported or getattr(value, "__module__", module) in (module, None)
