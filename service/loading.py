"""Bundles -> predictors, as the settings ask: threads, memory, whose signature is demanded."""

from pathlib import Path

from service.bundle import BundleError
from service.cpu import available_cpus
from service.predictor import Predictor
from service.settings import Settings


def threads_per_worker(settings: Settings) -> int:
    """CPU threads for one batch: as set, or this worker's part of the container's CPU share."""
    return settings.threads or max(1, available_cpus() // settings.workers)


def load_predictor(folder: Path, settings: Settings) -> Predictor:
    """Read, check and open the bundle; raises `BundleError`."""
    return Predictor.load(folder, threads=threads_per_worker(settings), jacobian_bytes=settings.jacobian_bytes)


def load_named(settings: Settings) -> list[Predictor]:
    """Every bundle that the settings name one by one; a bad one is an error. Those of `models` come later, and a bad
    one of them is not."""
    if not settings.bundle and settings.models is None:
        raise BundleError("PROBITY_BUNDLE", "no bundle given", "name a folder, or set PROBITY_BUNDLE or PROBITY_MODELS")
    return [load_predictor(folder, settings) for folder in settings.bundles]
