"""Let a recipe import the modules beside it, and read its arguments, as `python recipe.py` would.

While a recipe's code runs, its folder is the first entry of `sys.path`, and `sys.argv` holds its name alone. The
modules that were found there are taken out of `sys.modules` afterwards and put back the next time, so that two recipes
may each have a `network.py`.
"""

import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import ModuleType

# The module by which a process that was not forked imports the recipe.
AGAIN = """__file__ = {file!r}
with open(__file__, "rb") as source:
    exec(compile(source.read(), __file__, "exec"))
"""


class RecipeImports:
    """The import context of one recipe, which is the module `name`; may be entered again, also while it is open.

    Data loaders' worker processes inherit `sys.path`, so they find the modules too, if they are started while the
    context is open. Where they are not forked, they import the recipe again, for what it defines itself.
    """

    def __init__(self, recipe: Path, name: str) -> None:
        self._recipe, self._folder, self._name = recipe, recipe.parent.resolve(), name
        self._modules: dict[str, ModuleType] = {}
        self._open = 0

    @contextmanager
    def active(self) -> Iterator[None]:
        """Import from the recipe's folder while the block runs."""
        self._open += 1
        if self._open > 1:
            try:
                yield
            finally:
                self._open -= 1
            return
        displaced = {name: sys.modules[name] for name in self._modules if name in sys.modules}
        sys.modules.update(self._modules)
        before = set(sys.modules) - set(self._modules)
        with tempfile.TemporaryDirectory(prefix="demur-recipe-") as again:
            (Path(again) / f"{self._name}.py").write_text(AGAIN.format(file=str(self._recipe.resolve())))
            places = [str(self._folder), again]
            sys.path[:] = [places[0], *sys.path, places[1]]
            arguments, sys.argv = sys.argv, [str(self._recipe)]
            try:
                yield
            finally:
                self._open -= 1
                sys.argv = arguments
                for place in places:
                    with suppress(ValueError):  # the recipe may have changed it itself
                        sys.path.remove(place)
                self._put_away(before)
                sys.modules.update(displaced)

    def _put_away(self, before: set[str]) -> None:
        """Keep the modules that came from the folder for the next time, and forget them until then."""
        new = set(sys.modules) - before
        own = {name for name in new if "." not in name and self._is_own(sys.modules[name])}
        self._modules |= {name: sys.modules[name] for name in new if name.partition(".")[0] in own}
        for name in self._modules:
            sys.modules.pop(name, None)

    def _is_own(self, module: ModuleType) -> bool:
        """Whether a top-level module or package lies directly in the folder: not in a virtual environment below it."""
        packages = [Path(place) for place in getattr(module, "__path__", ())]
        file = getattr(module, "__file__", None)
        return self._folder in (place.resolve().parent for place in packages or ([Path(file)] if file else []))
