"""Probity's offline job: a trained network and data in, a bundle out. Needs torch; `FitConfig` alone does not.

>>> from offline import FitConfig, fit_bundle
>>> fit_bundle(model, train_loader, "bundles/digits", calibration_loader=held_out, config=FitConfig(seed=0))
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from offline.config import FitConfig
from service.bundle import ImagePreprocessing, InputSpec

if TYPE_CHECKING:
    from offline.export.errors import ExportError
    from offline.export.verify import VerificationError
    from offline.fit import fit_bundle
    from offline.laplace.posterior import FactorizationError
    from offline.network.finite import NotFiniteError
    from offline.runtime.checkpoint import CheckpointError
    from offline.runtime.distributed import DistributedError

__all__ = [
    "CheckpointError",
    "DistributedError",
    "ExportError",
    "FactorizationError",
    "FitConfig",
    "ImagePreprocessing",
    "InputSpec",
    "NotFiniteError",
    "VerificationError",
    "fit_bundle",
]
NEED_TORCH = {
    "CheckpointError": "offline.runtime.checkpoint",
    "DistributedError": "offline.runtime.distributed",
    "ExportError": "offline.export.errors",
    "FactorizationError": "offline.laplace.posterior",
    "NotFiniteError": "offline.network.finite",
    "VerificationError": "offline.export.verify",
    "fit_bundle": "offline.fit",
}


def __getattr__(name: str) -> Any:
    """Import what needs torch on first use, so that `probity serve` starts without it."""
    if name in NEED_TORCH:
        return getattr(import_module(NEED_TORCH[name]), name)
    raise AttributeError(f"module 'offline' has no attribute {name!r}")
