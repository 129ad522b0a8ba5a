"""Bundles -> predictors with the threads and the signatures that the settings ask for."""

import itertools
import logging
from dataclasses import replace
from pathlib import Path

from ..bundle import Bundle, BundleError, Verify, read_bundle
from ..format.text import printable
from ..inference.graph import Graph
from ..inference.onnx_wire import may_repeat
from ..inference.policy import Policy
from ..inference.predictor import Predictor
from ..maths.class_rules import ClassRules
from ..security.signing import TrustedKeys
from ..settings import Settings
from .cpu_share import all_threads, useful_threads
from .trials import Trials
from .versions_file import read_versions

# Where one example takes one thread longer than this, all threads compute one batch, to shorten the client's wait, and
# other models do not wait for it. For faster networks, one batch a thread gives more throughput; beside other models, a
# batch has no more examples than that take so long.
LONG_SECONDS, SHORT_ATTEMPTS = 0.02, 2
# Batches that compute no longer than this do so on the event loop, where they keep health checks waiting for no longer.
# Under load a thread waits as long for Python's lock, and the processor works twice as long for a request.
QUICK_SECONDS, QUICK_ROWS, QUICK_ATTEMPTS = 0.001, (1, 2, 4, 8, 16), 10
REPLACED_TRIES, NAMED = 5, 10
log = logging.getLogger("demur")


def load_predictor(folder: Path, settings: Settings, trials: Trials) -> Predictor:
    """Try the bundle in a process of its own, then read, check and open it here.

    Raises `BundleError`, also where a signature is demanded and not there.
    """
    verify = verifier(settings)
    for _ in range(REPLACED_TRIES):
        passed = trials.check(folder)
        bundle = read_bundle(folder, verify)
        if bundle.digest == passed:
            return _open(_named(bundle, settings), settings)
    raise BundleError(folder, "was replaced during each attempt to load it", "replace it once, then wait")


def _named(bundle: Bundle, settings: Settings) -> Bundle:
    """The bundle under the name that the settings give it; those in a folder of bundles keep their own."""
    if settings.model_name is None or bundle.path not in settings.bundles:
        return bundle
    return replace(bundle, manifest=replace(bundle.manifest, name=settings.model_name))


def _open(bundle: Bundle, settings: Settings) -> Predictor:
    def opened(threads: int) -> Predictor:
        return Predictor(bundle, threads=threads, policy=Policy.of(settings))

    predictor = opened(useful_threads(settings.threads or 1))
    _warn_of_shared_thresholds(predictor)
    long = predictor.graph.takes_longer_than(LONG_SECONDS)
    if not long:
        predictor.short_rows = _short_rows(predictor.graph)
    if not long and not may_repeat(bundle.model):
        predictor.quick_rows = _quick_rows(predictor.graph)
    if not long or all_threads(settings) == 1:
        return predictor
    if settings.threads is None:
        predictor = opened(all_threads(settings))
    predictor.takes_long = True
    return predictor


def _short_rows(graph: Graph) -> int:
    """The most examples, by doubling, whose batch does not take long."""
    rows, most = 1, graph.chunk_rows
    while rows < most and not graph.takes_longer_than(LONG_SECONDS, min(2 * rows, most), SHORT_ATTEMPTS):
        rows = min(2 * rows, most)
    return rows


def _quick_rows(graph: Graph) -> int:
    """The most examples that are quick; of fewer, all are."""
    possible = (rows for rows in QUICK_ROWS if rows <= graph.chunk_rows)
    quick = itertools.takewhile(lambda rows: not graph.takes_longer_than(QUICK_SECONDS, rows, QUICK_ATTEMPTS), possible)
    return max(quick, default=0)


def _warn_of_shared_thresholds(predictor: Predictor) -> None:
    rules = predictor.decision.rule
    if isinstance(rules, ClassRules) and len(rules.shared):
        names = predictor.manifest.labels
        log.warning(
            "%s: DEMUR_REJECT_BY_CLASS: %d of %d classes share a threshold, some having few held-out examples; the "
            "rate holds among those that share one together: %s",
            printable(str(predictor.path)),
            len(rules.shared),
            len(names),
            printable(", ".join(names[label] for label in rules.shared[:NAMED])),
        )


def verifier(settings: Settings) -> Verify | None:
    """The check of signatures, where the settings demand them. The file of trusted keys is read each time, so that a
    new key needs no restart."""
    return TrustedKeys.from_file(settings.trusted_keys) if settings.trusted_keys is not None else None


def load_named(settings: Settings) -> list[Predictor]:
    """Load every bundle that the settings name one by one; raises `BundleError` for a bad one.

    Bundles in `models` are loaded later, and a bad one is only logged.
    """
    if not settings.bundle and settings.models is None:
        raise BundleError("DEMUR_BUNDLE", "no bundle given", "name a folder, or set DEMUR_BUNDLE or DEMUR_MODELS")
    if settings.models is not None and not settings.models.is_dir():
        raise BundleError(settings.models, "found no such folder", "name one whose subfolders are bundles")
    if settings.models is not None:
        read_versions(settings.models)  # a pin that cannot be read is an error: the wrong version would answer
    verifier(settings)  # bad trusted keys are an error even where all bundles come later
    with Trials(settings) as trials:
        loaded = [load_predictor(folder, settings, trials) for folder in settings.bundles]
    _refuse_duplicates(loaded)
    names = [one.manifest.name for one in loaded]
    if settings.default_model is not None and settings.models is None and settings.default_model not in names:
        found = f"found DEMUR_DEFAULT_MODEL={settings.default_model!r:.100}, expected one of {', '.join(names)}"
        raise BundleError("DEMUR_DEFAULT_MODEL", found, "name a model that is served")
    return loaded


def _refuse_duplicates(loaded: list[Predictor]) -> None:
    seen: dict[tuple[str, str], Path] = {}
    for one in loaded:
        key = one.manifest.name, one.manifest.version
        if key in seen:
            found = f"found the model {key[0]!r} version {key[1]!r}, which {seen[key]} holds too"
            again = "fit one of them again with another --name or --version"
            raise BundleError(one.path, found, "name it once" if seen[key] == one.path else again)
        seen[key] = one.path
