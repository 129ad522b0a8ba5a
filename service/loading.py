"""Bundles -> predictors, as the settings ask: threads, memory, whose signature is demanded."""

from pathlib import Path

from service.bundle import BundleError, Verify, read_bundle
from service.cpu import available_cpus
from service.predictor import Predictor
from service.settings import Settings
from service.signing import TrustedKeys


def threads_per_worker(settings: Settings) -> int:
    """CPU threads for one batch: as set, or this worker's part of the container's CPU share."""
    return settings.threads or max(1, available_cpus() // settings.workers)


def load_predictor(folder: Path, settings: Settings) -> Predictor:
    """Read, check and open the bundle; raises `BundleError`, also where a signature is demanded and not there."""
    bundle = read_bundle(folder, verifier(settings))
    return Predictor(
        bundle,
        threads=threads_per_worker(settings),
        jacobian_bytes=settings.jacobian_bytes,
        plain_too=settings.degrade_after_seconds is not None,
    )


def verifier(settings: Settings) -> Verify | None:
    """What demands signatures, where the settings do. The file of trusted keys is read each time: whom to trust from
    now on needs no restart."""
    return TrustedKeys.from_file(settings.trusted_keys) if settings.trusted_keys is not None else None


def load_named(settings: Settings) -> list[Predictor]:
    """Every bundle that the settings name one by one; a bad one is an error. Those of `models` come later, and a bad
    one of them is not."""
    if not settings.bundle and settings.models is None:
        raise BundleError("PROBITY_BUNDLE", "no bundle given", "name a folder, or set PROBITY_BUNDLE or PROBITY_MODELS")
    verifier(settings)  # bad trusted keys are an error, also where all bundles come later
    return [load_predictor(folder, settings) for folder in settings.bundles]
