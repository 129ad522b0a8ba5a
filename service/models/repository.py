"""Folders -> loaded models: what is there is served, what changes is swapped in, what is bad changes nothing."""

import asyncio
import gc
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from service.bundle import BundleError
from service.metrics import Metrics
from service.models.cpu_share import fit_matrix_products
from service.models.folders import Stamp, bundles_in, digest_of, stamp_of
from service.models.served import ServedModel
from service.models.store import ModelNotFound, ModelStore
from service.predictor import Predictor

State = Literal["READY", "UNAVAILABLE"]
# A folder that is being replaced may be gone for an instant: only one missing this often in a row was removed.
MISSING_SCANS = 2
MOST_PATIENCE = 32  # scans between attempts at a bundle that was refused again and again
log = logging.getLogger("probity")


@dataclass
class Entry:
    """One bundle folder: the model loaded from it, and why its present content is not the one that serves."""

    folder: Path
    called: str
    stamp: Stamp | None = None
    model: ServedModel | None = None
    reason: str = ""
    parked: bool = False
    missing: int = 0
    patience: int = 1
    retry_in: int = 0

    @property
    def name(self) -> str:
        """The model's name; where it never was loaded, its folder's, or that of the one around several versions."""
        return self.model.name if self.model else self.called

    def refused(self, reason: str) -> bool:
        """Note why it was not loaded, and wait longer each time before the next attempt; whether the reason is new."""
        new, self.reason = reason != self.reason, reason
        self.retry_in, self.patience = self.patience, min(2 * self.patience, MOST_PATIENCE)
        return new

    def loaded(self, model: ServedModel) -> None:
        """It serves."""
        self.model, self.reason, self.parked, self.patience, self.retry_in = model, "", False, 1, 0

    def due(self) -> bool:
        """Whether to try once more what was refused: what was wrong may lie outside the folder, as with a key that is
        not trusted yet."""
        self.retry_in -= 1
        return bool(self.reason) and self.retry_in <= 0


@dataclass(frozen=True)
class Listed:
    """A line of the repository's index."""

    name: str
    version: str
    state: State
    reason: str


class Repository:
    """`folders` are bundles; each folder inside `models_folder` that holds a bundle (or, one level deeper, several
    versions) is one too. `load` reads a bundle (in a thread), `serve` puts a queue before it."""

    def __init__(
        self,
        store: ModelStore,
        load: Callable[[Path], Predictor],
        serve: Callable[[Predictor], ServedModel],
        metrics: Metrics,
        folders: Iterable[Path] = (),
        models_folder: Path | None = None,
    ) -> None:
        self.store, self._load, self._serve, self._metrics = store, load, serve, metrics
        self._folders, self._models_folder = list(folders), models_folder
        self._entries: dict[Path, Entry] = {}
        self._change = asyncio.Lock()
        self._retiring: set[asyncio.Task[None]] = set()

    def adopt(self, predictors: Iterable[Predictor]) -> None:
        """Serve what was loaded before the event loop ran; raises `BundleError` where two are the same model."""
        for predictor in predictors:
            entry = self._entry(predictor.path)
            self._swap(entry, predictor)

    def _entry(self, folder: Path) -> Entry:
        deeper = self._models_folder is not None and folder.parent.parent == self._models_folder
        called = folder.parent.name if deeper and folder not in self._folders else folder.name
        return self._entries.setdefault(folder, Entry(folder, called))

    def index(self) -> list[Listed]:
        """Every folder, loaded or not."""
        return [
            Listed(
                entry.name,
                entry.model.version if entry.model else "",
                "READY" if entry.model and not entry.parked else "UNAVAILABLE",
                "unloaded" if entry.parked else entry.reason,
            )
            for entry in self._entries.values()
        ]

    async def refresh(self) -> None:
        """Load what is new or changed, unload what is gone."""
        async with self._change:
            found = await asyncio.to_thread(self._scan)
            for folder, stamp in found.items():
                entry = self._entry(folder)
                entry.missing = 0
                if entry.parked:  # until somebody wants it back
                    continue
                if entry.stamp != stamp or entry.due():
                    await self._renew(entry, stamp)
            for folder in [*self._entries]:
                if folder not in found:
                    self._miss(self._entries[folder])

    async def watch(self, seconds: float) -> None:
        """Refresh for ever, every so many seconds. While the folder cannot be looked through, nothing changes."""
        trouble = ""
        while True:
            await asyncio.sleep(seconds)
            try:
                await self.refresh()
                trouble = ""
            except OSError as error:
                if str(error) != trouble:
                    log.error("the models' folder could not be looked through, nothing changes: %s", error)
                trouble = str(error)
            except Exception:
                log.exception("the models' folders could not be looked through")

    async def load(self, name: str) -> None:
        """Load the model again, or for the first time; raises `ModelNotFound` or `BundleError`, and then the one
        loaded before still serves."""
        async with self._change:
            for folder in await asyncio.to_thread(self._scan):
                self._entry(folder)
            entries = self._named(name)
            for entry in entries:
                await self._reload(entry, await asyncio.to_thread(stamp_of, entry.folder))
                if entry.reason:
                    raise BundleError(
                        entry.folder, entry.reason, "mend the bundle; what was loaded before still serves"
                    )

    async def unload(self, name: str) -> None:
        """Serve no version of it any longer; raises `ModelNotFound`."""
        async with self._change:
            for entry in self._named(name):
                entry.parked = True
                if entry.model is not None and self.store.remove(entry.model):
                    self._retire(entry.model)

    async def close(self) -> None:
        """Compute what was admitted, and end."""
        for model in self.store:
            self._retire(model)
        await asyncio.gather(*self._retiring)

    def _named(self, name: str) -> list[Entry]:
        entries = [entry for entry in self._entries.values() if entry.name == name]
        if not entries:
            raise ModelNotFound(name, None, sorted({entry.name for entry in self._entries.values()}))
        return entries

    async def _renew(self, entry: Entry, stamp: Stamp) -> None:
        """Load what is there, unless it is the very bundle that was loaded already."""
        entry.stamp = stamp
        if entry.model is None or await asyncio.to_thread(digest_of, entry.folder) != entry.model.digest:
            await self._reload(entry, stamp)
        elif entry.reason:  # a bad bundle was taken back
            entry.reason = ""
            self._metrics.load_mended(entry.name)

    async def _reload(self, entry: Entry, stamp: Stamp | None) -> None:
        entry.stamp = stamp
        try:
            predictor = await asyncio.to_thread(self._load, entry.folder)
            before = entry.name
            self._swap(entry, predictor)
            self._metrics.load_mended(before)
        except BundleError as error:
            kept = "what was loaded before still serves" if entry.model and not entry.parked else "nothing is served"
            if entry.refused(str(error)):
                log.error("%s: not loaded, %s: %s", entry.folder, kept, error)
            self._metrics.load_failed(entry.name)

    def _swap(self, entry: Entry, predictor: Predictor) -> None:
        """From one request to the next, `predictor` answers in place of what was loaded from this folder."""
        old = entry.model
        self._refuse_clash(entry, predictor)
        model = self._serve(predictor)
        model.metrics.announce()
        self.store.put(model)
        if old is not None and not entry.parked:
            self.store.remove(old)
            self._retire(old)
        entry.loaded(model)
        fit_matrix_products(one.predictor.threads for one in self.store)
        log.info("%s: serving %s version %s, digest %s", entry.folder, model.name, model.version, model.digest)

    def _refuse_clash(self, entry: Entry, predictor: Predictor) -> None:
        manifest = predictor.manifest
        for other in self._entries.values():
            model = other.model
            if other is entry or model is None or other.parked:
                continue
            if (model.name, model.version) == (manifest.name, manifest.version):
                found = f"found the model {manifest.name!r} version {manifest.version!r}, which {other.folder} serves"
                raise BundleError(entry.folder, found, "give one of them another name or version")

    def _retire(self, model: ServedModel) -> None:
        if not any(other.digest == model.digest for other in self.store if other is not model):
            model.metrics.withdraw()
        fit_matrix_products(one.predictor.threads for one in self.store)
        task = asyncio.get_running_loop().create_task(self._end(model))
        self._retiring.add(task)
        task.add_done_callback(self._retiring.discard)

    async def _end(self, model: ServedModel) -> None:
        await model.retire()
        served = {(other.name, other.version) for other in self.store}
        if (model.name, model.version) not in served:
            model.metrics.remove()
        del model
        # A model and its queue refer to each other: without this, its memory waits for a garbage collection that may
        # come many models later.
        gc.collect()

    def _miss(self, entry: Entry) -> None:
        entry.missing += 1
        if entry.missing < MISSING_SCANS or entry.folder in self._folders:
            return
        del self._entries[entry.folder]
        self._metrics.load_mended(entry.name)
        if entry.model is not None and self.store.remove(entry.model):
            self._retire(entry.model)
        log.info("%s: gone, unloaded", entry.folder)

    def _scan(self) -> dict[Path, Stamp]:
        """Every bundle folder there is, with what tells whether its content was replaced; `OSError` where the models'
        folder cannot be read: a disk that is away for a moment must not look like models that were removed."""
        folders = [*self._folders, *(bundles_in(self._models_folder) if self._models_folder else [])]
        stamps = {folder: stamp_of(folder) for folder in folders}
        return {folder: stamp for folder, stamp in stamps.items() if stamp is not None}
