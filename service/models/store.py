"""The models that serve now, by name and version. Changes are atomic: no request sees half of one."""

import re
from collections.abc import Callable, Iterator, Mapping

from .served import ServedModel
from .versions_file import Pinned

Ticket = Callable[[], float]
BEFORE_A_RELEASE = re.compile(r"[-._]?(alpha|beta|rc|pre|preview|dev)[-._]?")


def highest() -> float:
    """The ticket of no canary."""
    return 1.0


class ModelNotFound(LookupError):
    """No such model, or no such version of it, is loaded."""

    def __init__(self, name: str | None, version: str | None, loaded: list[str], pinned: str | None = None) -> None:
        """pinned: the version that answers requests which name none, where the operator chose one."""
        self.name, self.version = name, version
        what = "a default model" if name is None else f"the model {name!r:.100}"
        if version is not None:
            what += f" of version {version!r:.100}"
        elif pinned is not None:
            what += f", pinned to version {pinned!r:.100},"
        super().__init__(f"{what} is not loaded; loaded are: {', '.join(loaded) or 'none':.1000}")


class ModelsLoading(ModelNotFound):
    """No such model is loaded yet, but not all bundles of the start were tried."""


class ModelStore:
    """Models by name and version. `default` answers requests that name no model; unset, it is the first one put,
    or what takes the place of its bundle. Of several versions the one that is pinned answers requests that name none,
    or else the latest.

    `loading`: bundles that were there at the start are still tried for the first time.
    """

    def __init__(self, default: str | None = None) -> None:
        self._default, self._chosen, self.loading = default, default is not None, False
        self._models: dict[str, dict[str, ServedModel]] = {}
        self._answering: dict[str, ServedModel] = {}
        self._pinned: Mapping[str, Pinned] = {}

    def __iter__(self) -> Iterator[ServedModel]:
        return (model for versions in self._models.values() for model in versions.values())

    @property
    def default(self) -> str | None:
        """The default model's name."""
        return self._default

    def find(self, name: str | None = None, version: str | None = None, ticket: Ticket = highest) -> ServedModel:
        """The model of this name (None: the default one) and version (None: the one that answers); raises
        `ModelNotFound`, or `ModelsLoading` where it may come yet.

        ticket: gives that of a request, from 0 to 1, where it matters: those below the share of a canary are the
        canary's, while it is loaded.
        """
        wanted = (name if name is not None else self._default) or ""
        model = self._drawn(wanted, ticket) if version is None else self._models.get(wanted, {}).get(version)
        if model is None:
            kind, pinned = ModelsLoading if self.loading else ModelNotFound, self._pinned.get(wanted)
            loaded = [f"{one.name} {one.version}" for one in self]
            raise kind(name, version, loaded, None if pinned is None else pinned.version)
        return model

    def _drawn(self, name: str, ticket: Ticket) -> ServedModel | None:
        model, pinned = self.answering(name), self._pinned.get(name)
        if model is None or pinned is None or not pinned.canary:
            return model
        left = ticket()
        for version, share in pinned.canary.items():
            if left < share:
                return self.loaded(name, version) or model
            left -= share
        return model

    def loaded(self, name: str, version: str) -> ServedModel | None:
        """This version of the model of this name, where it is loaded."""
        return self._models.get(name, {}).get(version)

    def answering(self, name: str | None) -> ServedModel | None:
        """The version of the model of this name that answers requests which name none, where there is one."""
        return self._answering.get(name or "")

    @property
    def answers(self) -> bool:
        """Whether some model answers requests that name no version."""
        return bool(self._answering)

    def unanswered(self) -> dict[str, str]:
        """Models of which versions are loaded and none answers, and the version that they are pinned to."""
        return {name: self._pinned[name].version for name in self._models if name not in self._answering}

    def astray(self) -> list[str]:
        """What is pinned, as a version or for a share of requests, and not loaded."""
        wanted = ((name, version) for name, one in self._pinned.items() for version in (one.version, *one.canary))
        return [f"{name} {version}" for name, version in wanted if self.loaded(name, version) is None]

    def pin(self, versions: Mapping[str, Pinned]) -> None:
        """From now on these answer, by the name of their model, and of other models the latest version.

        While a pinned one is not loaded, the one that answered before goes on; at the start, or where that one is gone,
        none answers.
        """
        self._pinned = dict(versions)
        self._choose()

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
        self._choose()

    def _choose(self) -> None:
        chosen = {name: self._chosen_of(name, found) for name, found in self._models.items()}
        self._answering = {name: model for name, model in chosen.items() if model is not None}

    def _chosen_of(self, name: str, versions: Mapping[str, ServedModel]) -> ServedModel | None:
        if name not in self._pinned:
            return versions[max(versions, key=version_key)]
        before = self._answering.get(name)
        return versions.get(self._pinned[name].version) or (None if before is None else versions.get(before.version))


def version_key(version: str) -> list[tuple[int, int, str]]:
    """Numbers inside a version compare as numbers, and what comes before a release is older than it: 9 < 10,
    1.9 < 1.10-rc1 < 1.10 < 1.10.1."""
    parts = re.findall(r"[0-9]+|[^0-9]+", version)
    ranks = ((3, int(part), "") if part.isdecimal() and part.isascii() else (_rank(part), 0, part) for part in parts)
    return [*ranks, (1, 0, "")]  # the end


def _rank(text: str) -> int:
    return 0 if BEFORE_A_RELEASE.fullmatch(text) else 2
