"""Folders -> loaded models: new bundles are served, changed ones are swapped in, bad ones change nothing."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable
from pathlib import Path
from typing import Any, Literal

from ..bundle import BundleError, is_bundle_at
from ..format.text import printable
from ..inference.predictor import Predictor
from ..monitoring.metrics import Metrics
from .folder_record import FolderRecord
from .folders import Stamp, bundles_in, stamp_of
from .served import ServedModel
from .store import ModelStore
from .versions_file import VERSIONS_FILE, Pinned, VersionsFileError, read_versions

# A folder that is being replaced is gone for an instant: it counts as removed after this many scans without it.
MAX_MISSED_SCANS = 2
# Bundles tried at the same time, so that one that hangs does not delay the others.
LOADS_AT_ONCE = 2
log = logging.getLogger("demur")
Required = Literal["named", "all", "any"]


class Repository:
    """`folders` are bundles; each folder inside `models_folder` that holds a bundle (or, one level deeper, several
    versions) is one too. `load` reads a bundle (in a thread), `serve` puts a queue before it. `tell` hears what
    happens: an event's name and fields. records: what is known of each bundle's folder."""

    def __init__(
        self,
        store: ModelStore,
        load: Callable[[Path], Predictor],
        serve: Callable[[Predictor], ServedModel],
        metrics: Metrics,
        folders: Iterable[Path] = (),
        models_folder: Path | None = None,
        tell: Callable[..., None] | None = None,
    ) -> None:
        self.store, self._load, self._serve, self._metrics = store, load, serve, metrics
        self._folders, self._models_folder, self._tell = list(folders), models_folder, tell or _ignored
        self.records: dict[Path, FolderRecord] = {}
        self._versions: dict[str, Pinned] | None = None
        self._versions_trouble, self._unanswered, self._astray = "", dict[str, str](), list[str]()
        self._at_once = asyncio.Semaphore(LOADS_AT_ONCE)
        self._loading: set[asyncio.Task[None]] = set()
        self._retiring: set[asyncio.Task[None]] = set()

    def adopt(self, predictors: Iterable[Predictor]) -> None:
        """Serve what was loaded before the event loop ran; raises `BundleError` where two are the same model."""
        for predictor in predictors:
            record = self._record(predictor.path)
            self._swap(record, predictor)

    def _record(self, folder: Path) -> FolderRecord:
        deeper = self._models_folder is not None and folder.parent.parent == self._models_folder
        name = folder.parent.name if deeper and folder not in self._folders else folder.name
        return self.records.setdefault(folder, FolderRecord(folder, name))

    def missing(self, required: Required, default: str | None) -> list[str]:
        """The names of required models that are not loaded.

        "named" requires `default` (and `folders`, which are loaded before the start), or the first model of the
        models' folder: which one and of which version is known once all were tried; "all" every folder of the start,
        also those that were refused: a bad bundle that comes later takes nothing away from those that serve; "any"
        none.
        """
        if required == "any":
            return []
        untried = self.store.loading and (default is not None or not self._folders)
        names = [
            record.name
            for record in self.records.values()
            if record.of_the_start and record.model is None and (required == "all" or untried)
        ]
        if default is not None and self.store.answering(default) is None:
            names.append(default)
        names += [
            f"{name} version {version}, to which it is pinned" for name, version in self.store.unanswered().items()
        ]
        return sorted({*names})

    async def begin(self) -> asyncio.Task[None]:
        """Find the bundles that are there at the start; the task loads them, while `store.loading`. Raises `OSError`
        where the folders cannot be read, and `VersionsFileError`."""
        changed = await self._changed()
        for record, _ in changed:
            record.of_the_start = True
        self.store.loading = True
        return self._start(self._load_first(changed))

    async def _load_first(self, changed: list[tuple[FolderRecord, Stamp]]) -> None:
        try:
            await self._renew_in_order(changed)
        finally:
            self.store.loading = False
            self._note_unanswered()

    async def refresh(self) -> None:
        """Load what is new or changed, unload what is gone."""
        await self._renew_in_order(await self._changed())
        self._note_unanswered()

    async def _renew_in_order(self, changed: list[tuple[FolderRecord, Stamp]]) -> None:
        """Models come in the order of their folders, whichever is tried first."""
        turn = None
        async with asyncio.TaskGroup() as group:
            for record, stamp in changed:
                turn = group.create_task(self._renew(record, stamp, turn))

    async def _changed(self) -> list[tuple[FolderRecord, Stamp]]:
        """The folders to load, with their stamps. Unloads models whose folders are gone, and follows `versions.json`,
        the file that pins versions."""
        found, now = await self._scan(), asyncio.get_running_loop().time()
        await self._pin()
        changed = []
        for folder, stamp in found.items():
            record = self._record(folder)
            record.missed_scans = 0
            if record.busy.locked():  # until the load ends
                continue
            if record.stamp != stamp or record.due(now):
                changed.append((record, stamp))
        for folder in [*self.records]:
            if folder not in found:
                self._note_missing(self.records[folder])
        return changed

    async def _pin(self) -> None:
        """A file that cannot be read changes nothing; at the start that is an error: the wrong version would answer."""
        if self._models_folder is None:
            return
        try:
            versions = await asyncio.to_thread(read_versions, self._models_folder)
        except VersionsFileError as error:
            self._metrics.versions_unreadable.set(1)
            if self._versions is None:
                raise
            if str(error) != self._versions_trouble:
                log.error("%s; the versions that answered before go on", error)
            self._versions_trouble = str(error)
            return
        self._metrics.versions_unreadable.set(0)
        self._versions_trouble = ""
        if versions != (self._versions or {}):
            pinned = printable(", ".join(f"{name} to {one}" for name, one in versions.items()))
            log.info("%s pins %s", VERSIONS_FILE, pinned or "nothing any more: the latest versions answer")
            self._tell("pinned", versions={name: str(one) for name, one in versions.items()})
        self._versions = versions
        self.store.pin(versions)

    def _note_unanswered(self) -> None:
        """Say once of which models no version answers, and what of the pinned ones is not there."""
        astray = self.store.astray()
        if astray and astray != self._astray:
            found = printable(", ".join(astray))
            log.warning(
                "%s pins what is not loaded: %s; what answered before, or would without, goes on", VERSIONS_FILE, found
            )
        self._astray = astray
        unanswered = self.store.unanswered()
        if unanswered and unanswered != self._unanswered:
            each = printable(", ".join(f"{name} is pinned to version {one}" for name, one in unanswered.items()))
            log.error("%s, which is not loaded: requests that name no version get 404", each)
        self._unanswered = unanswered

    async def watch(self, seconds: float) -> None:
        """Scan for changes every `seconds`, for ever, once the bundles of the start were tried. A slow load delays
        nothing else, and while the folder cannot be read, nothing changes."""
        trouble = ""
        while True:
            await asyncio.sleep(seconds)
            if self.store.loading:
                continue
            try:
                for record, stamp in await self._changed():
                    self._start(self._renew(record, stamp))
                self._note_unanswered()
                trouble = ""
            except OSError as error:
                if str(error) != trouble:
                    place = printable(str(error))
                    log.error("the models' folder cannot be read, the loaded models stay: %s", place)
                trouble = str(error)
            except Exception:
                log.exception("the scan of the models' folders failed")

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._loading.add(task)
        task.add_done_callback(self._loading.discard)
        return task

    async def stop_loading(self) -> None:
        """Cancel the loads that are under way."""
        for task in self._loading:
            task.cancel()
        await asyncio.gather(*self._loading, return_exceptions=True)

    def note_elsewhere(self, folder: Path, refused: str) -> None:
        """What is at the URI of this folder now is refused for this reason; empty: it is not."""
        record = self.records.get(folder)
        if record is None:
            return
        before, record.refused_elsewhere = record.refused_elsewhere, refused
        if refused:
            if refused != before:
                self._tell("refused", place=record.place, problem=refused)
            self._metrics.load_failed(record.name)
        elif before:
            self._note_recovered(record.name)

    async def close(self) -> None:
        """Retire every model, after its admitted requests are computed."""
        for model in self.store:
            self._retire(model)
        await asyncio.gather(*self._retiring)

    async def _renew(self, record: FolderRecord, stamp: Stamp, turn: asyncio.Task[None] | None = None) -> None:
        """Serve what the folder holds now, after the task `turn`."""
        clock = asyncio.get_running_loop().time
        async with record.busy:
            record.stamp = stamp
            async with self._at_once:
                start = clock()
                outcome = await asyncio.to_thread(self._outcome, record)
                seconds = clock() - start
            if turn is not None:
                await asyncio.wait([turn])
            try:
                if isinstance(outcome, BundleError):
                    self._refuse(record, outcome, seconds)
                else:
                    self._settle(record, outcome)
            except BundleError as error:
                self._refuse(record, error, seconds)

    def _outcome(self, record: FolderRecord) -> Predictor | BundleError | None:
        """What `_read` returns, or its error: no bundle, whatever it holds, may stop the others from being loaded."""
        try:
            return self._read(record)
        except BundleError as error:
            return BundleError(error.file, error.problem, error.remedy)  # without the frames that hold what was read
        except Exception as error:
            log.exception("%s: could not be loaded", record.place)
            return BundleError(record.folder, f"could not be loaded: {type(error).__name__}: {error}")

    def _read(self, record: FolderRecord) -> Predictor | None:
        """The bundle's predictor; None where the folder still holds the bundle that was loaded."""
        served = None if record.model is None else record.model.predictor
        if served is not None and is_bundle_at(record.folder, served.manifest_sha256, served.manifest.files):
            return None
        return self._load(record.folder)

    def _settle(self, record: FolderRecord, outcome: Predictor | None) -> None:
        before, refused = record.name, bool(record.reason)
        if outcome is not None:
            self._swap(record, outcome)
        record.reason = ""
        if outcome is not None or refused:  # a bad bundle was undone, or replaced
            self._note_recovered(before)

    def _note_recovered(self, name: str) -> None:
        """A folder of this model is refused no more, unless another one still is."""
        others = (record for record in self.records.values() if record.name == name)
        if not any(record.reason or record.refused_elsewhere for record in others):
            self._metrics.load_recovered(name)

    def _refuse(self, record: FolderRecord, error: BundleError, seconds: float) -> None:
        problem = str(error)
        if record.refused(problem, asyncio.get_running_loop().time(), seconds):
            log.error("%s: not loaded, %s: %s", record.place, _kept(record), problem)
            self._tell("refused", place=record.place, problem=problem)
        self._metrics.load_failed(record.name)

    def _swap(self, record: FolderRecord, predictor: Predictor) -> None:
        """Replace the model loaded from this folder by `predictor`, between two requests."""
        old = record.model
        self._refuse_clash(record, predictor)
        model = self._serve(predictor)
        model.metrics.announce()
        default = self.store.default
        self.store.put(model, old)
        if old is not None:
            self.store.remove(old)
            self._retire(old)
            if self.store.default != default:
                log.warning("%r answers /predict now, having taken the place of %r", self.store.default, default)
        record.loaded(model)
        described = printable(f"{model.name} version {model.version}")
        log.info("%s: serving %s, digest %s", record.place, described, model.digest)
        self._tell("loaded", place=record.place, **_named(model), replaced=None if old is None else old.digest)

    def _refuse_clash(self, record: FolderRecord, predictor: Predictor) -> None:
        manifest = predictor.manifest
        for other in self.records.values():
            model = other.model
            if other is record or model is None:
                continue
            if (model.name, model.version) == (manifest.name, manifest.version):
                both = f"the model {manifest.name!r} version {manifest.version!r}"
                found = f"found {both}, which the folder {other.place!r} holds too"
                raise BundleError(record.folder, found, "give one of them another name or version")

    def _retire(self, model: ServedModel) -> None:
        if not any(other.digest == model.digest for other in self.store if other is not model):
            model.metrics.withdraw()
        task = asyncio.get_running_loop().create_task(self._end(model))
        self._retiring.add(task)
        task.add_done_callback(self._retiring.discard)

    async def _end(self, model: ServedModel) -> None:
        await model.retire()
        served = {(other.name, other.version) for other in self.store}
        if (model.name, model.version) not in served:
            model.metrics.remove()

    def _note_missing(self, record: FolderRecord) -> None:
        if record.busy.locked():
            return
        record.missed_scans += 1
        if record.missed_scans < MAX_MISSED_SCANS or record.folder in self._folders:
            return
        del self.records[record.folder]
        self._note_recovered(record.name)
        if record.model is not None and self.store.remove(record.model):
            self._retire(record.model)
        log.info("%s: gone, %s", record.place, "forgotten" if record.model is None else "unloaded")
        if record.model is not None:
            self._tell("unloaded", place=record.place, **_named(record.model))

    async def _scan(self) -> dict[Path, Stamp]:
        try:
            return await asyncio.to_thread(_stamps, [*self._folders, *self.records], self._models_folder)
        except OSError:  # nor can the file in the folder be
            self._metrics.versions_unreadable.set(1)
            raise


def _ignored(event: str, **fields: object) -> None:
    """Where nobody listens."""


def _named(model: ServedModel) -> dict[str, str]:
    return {"model": model.name, "version": model.version, "digest": model.digest}


def _kept(record: FolderRecord) -> str:
    """What goes on where a folder is refused."""
    return "nothing is served" if record.model is None else "the model loaded before still serves"


def _stamps(known: list[Path], models_folder: Path | None) -> dict[Path, Stamp]:
    """Every bundle folder, with a stamp that changes with its content.

    Raises `OSError` where the models' folder cannot be read: a disk that is away for a moment must not look like
    models that were removed.
    """
    inside = bundles_in(models_folder) if models_folder else []
    stamps = {folder: stamp_of(folder) for folder in dict.fromkeys([*known, *inside])}
    return {folder: stamp for folder, stamp in stamps.items() if stamp is not None}
