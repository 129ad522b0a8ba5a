"""Demur's offline job: a trained network and data in, a bundle out. Needs torch; `FitConfig` alone does not.

>>> from demur.offline import FitConfig, fit_bundle
>>> fit_bundle(model, train_loader, "bundles/digits", calibration_loader=held_out, config=FitConfig(seed=0))
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from demur.service.bundle import ImagePreprocessing, InputSpec

from .config import FitConfig

if TYPE_CHECKING:
    from .data.image_spec import image_spec
    from .export.errors import ExportError
    from .export.verify import VerificationError
    from .fit import fit_bundle
    from .laplace.posterior import FactorizationError
    from .network.finite import NotFiniteError
    from .runtime.checkpoint import CheckpointError
    from .runtime.distributed import DistributedError

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
    "image_spec",
]
NEED_TORCH = {
    "CheckpointError": ".runtime.checkpoint",
    "DistributedError": ".runtime.distributed",
    "ExportError": ".export.errors",
    "FactorizationError": ".laplace.posterior",
    "NotFiniteError": ".network.finite",
    "VerificationError": ".export.verify",
    "fit_bundle": ".fit",
    "image_spec": ".data.image_spec",
}


def __getattr__(name: str) -> Any:
    """Import what needs torch on first use, so that `demur serve` starts without it."""
    if name in NEED_TORCH:
        return getattr(import_module(NEED_TORCH[name], __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
