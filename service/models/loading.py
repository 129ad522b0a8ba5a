"""Bundles -> predictors, as the settings ask: threads, memory, whose signature is demanded."""

from pathlib import Path

from service.bundle import Bundle, BundleError, Verify, read_bundle
from service.inference.predictor import Predictor
from service.models.cpu_share import all_threads, batches_at_once
from service.models.trials import Trials
from service.security.signing import TrustedKeys
from service.settings import Settings

# An example that takes one thread longer than this is worth the threads of all: its client waits for it. Below, threads
# that each compute a batch of their own do more in the same time than threads that share one.
LONG_SECONDS = 0.02
REPLACED_TRIES = 5


def load_predictor(folder: Path, settings: Settings, trials: Trials) -> Predictor:
    """Try the bundle in a process of its own, then read, check and open it here.

    Raises `BundleError`, also where a signature is demanded and not there.
    """
    verify = verifier(settings)
    for _ in range(REPLACED_TRIES):
        passed = trials.check(folder)
        bundle = read_bundle(folder, verify)
        if bundle.digest == passed:
            return _open(bundle, settings)
    raise BundleError(folder, "was replaced each time that it had been tried", "replace it once")


def _open(bundle: Bundle, settings: Settings) -> Predictor:
    def opened(threads: int) -> Predictor:
        return Predictor(
            bundle,
            threads=threads,
            jacobian_bytes=settings.jacobian_bytes // batches_at_once(settings, threads),
            plain_too=settings.degrade_after_seconds is not None,
        )

    predictor = opened(settings.threads or 1)
    several = settings.threads is None and all_threads(settings) > 1
    return opened(all_threads(settings)) if several and predictor.takes_longer_than(LONG_SECONDS) else predictor


def verifier(settings: Settings) -> Verify | None:
    """What demands signatures, where the settings do. The file of trusted keys is read each time: whom to trust from
    now on needs no restart."""
    return TrustedKeys.from_file(settings.trusted_keys) if settings.trusted_keys is not None else None


def load_named(settings: Settings) -> list[Predictor]:
    """Every bundle that the settings name one by one; a bad one is an error. Those of `models` come later, and a bad
    one of them is not."""
    if not settings.bundle and settings.models is None:
        raise BundleError("PROBITY_BUNDLE", "no bundle given", "name a folder, or set PROBITY_BUNDLE or PROBITY_MODELS")
    if settings.models is not None and not settings.models.is_dir():
        raise BundleError(settings.models, "found no such folder", "name one whose subfolders are bundles")
    verifier(settings)  # bad trusted keys are an error, also where all bundles come later
    with Trials(settings) as trials:
        loaded = [load_predictor(folder, settings, trials) for folder in settings.bundles]
    _refuse_twins(loaded)
    names = [one.manifest.name for one in loaded]
    if settings.default_model is not None and settings.models is None and settings.default_model not in names:
        found = f"found PROBITY_DEFAULT_MODEL={settings.default_model!r:.100}, expected one of {', '.join(names)}"
        raise BundleError("PROBITY_DEFAULT_MODEL", found, "name a model that is served")
    return loaded


def _refuse_twins(loaded: list[Predictor]) -> None:
    seen: dict[tuple[str, str], Path] = {}
    for one in loaded:
        key = one.manifest.name, one.manifest.version
        if key in seen:
            found = f"found the model {key[0]!r} version {key[1]!r}, which is in {seen[key]} too"
            raise BundleError(one.path, found, "give one of them another name or version")
        seen[key] = one.path
