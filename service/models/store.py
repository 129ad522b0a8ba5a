"""The models that serve now, by name and version. Changes are atomic: no request sees half of one."""

import re
from collections.abc import Iterator

from probity.service.models.served import ServedModel


class ModelNotFound(LookupError):
    """No such model, or no such version of it, is loaded."""

    def __init__(self, name: str | None, version: str | None, loaded: list[str]) -> None:
        self.name, self.version = name, version
        what = "a default model" if name is None else f"the model {name!r:.100}"
        if version is not None:
            what += f" of version {version!r:.100}"
        super().__init__(f"{what} is not loaded; loaded are: {', '.join(loaded) or 'none'}")


class ModelsLoading(ModelNotFound):
    """No such model is loaded yet, but not all bundles of the start were tried."""


class ModelStore:
    """Models by name and version. `default` answers requests that name no model; unset, it is the first one put,
    or what takes the place of its bundle.

    `loading`: bundles that were there at the start are still tried for the first time.
    """

    def __init__(self, default: str | None = None) -> None:
        self._default, self._chosen, self.loading = default, default is not None, False
        self._models: dict[str, dict[str, ServedModel]] = {}
        self._latest: dict[str, ServedModel] = {}

    def __iter__(self) -> Iterator[ServedModel]:
        return (model for versions in self._models.values() for model in versions.values())

    @property
    def default(self) -> str | None:
        """The default model's name."""
        return self._default

    def find(self, name: str | None = None, version: str | None = None) -> ServedModel:
        """The model of this name (None: the default one) and version (None: the latest); raises `ModelNotFound`, or
        `ModelsLoading` where it may come yet."""
        wanted = name if name is not None else self._default
        model = self.latest(wanted) if version is None else self._models.get(wanted or "", {}).get(version)
        if model is None:
            kind = ModelsLoading if self.loading else ModelNotFound
            raise kind(name, version, [f"{one.name} {one.version}" for one in self])
        return model

    def latest(self, name: str | None) -> ServedModel | None:
        """The latest version of the model of this name, where there is one."""
        return self._latest.get(name or "")

    def versions(self, name: str) -> list[str]:
        """The loaded versions of a model, oldest first."""
        return sorted(self._models.get(name, {}), key=version_key)

    def put(self, model: ServedModel, instead_of: ServedModel | None = None) -> ServedModel | None:
        """Serve the model from now on. Returns the one that it replaces, to be retired. instead_of: what the same
        folder held before."""
        by_default = self._models.get(self._default or "", {})
        takes_over = not self._chosen and len(by_default) == 1 and instead_of in by_default.values()
        if self._default is None or takes_over:
            self._default = model.name
        versions = self._models.get(model.name, {})
        self._set(model.name, {**versions, model.version: model})
        return versions.get(model.version)

    def remove(self, model: ServedModel) -> bool:
        """Stop serving the model; False where it was replaced already."""
        versions = self._models.get(model.name, {})
        if versions.get(model.version) is not model:
            return False
        self._set(model.name, {version: other for version, other in versions.items() if other is not model})
        return True

    def _set(self, name: str, versions: dict[str, ServedModel]) -> None:
        self._models = {other: found for other, found in {**self._models, name: versions}.items() if found}
        self._latest = {other: found[max(found, key=version_key)] for other, found in self._models.items()}


def version_key(version: str) -> list[tuple[int, int, str]]:
    """Numbers inside a version compare as numbers: 9 < 10, 1.9 < 1.10."""
    parts = re.findall(r"[0-9]+|[^0-9]+", version)
    return [(1, int(part), "") if part.isdecimal() and part.isascii() else (0, 0, part) for part in parts]
