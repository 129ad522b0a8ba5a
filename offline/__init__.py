"""Probity's offline job: a trained network and data in, a bundle out. Needs torch; `FitConfig` alone does not.

>>> from probity.offline import FitConfig, fit_bundle
>>> fit_bundle(model, train_loader, "bundles/digits", calibration_loader=held_out, config=FitConfig(seed=0))
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from probity.offline.config import FitConfig
from probity.service.bundle import ImagePreprocessing, InputSpec

if TYPE_CHECKING:
    from probity.offline.data.image_spec import image_spec
    from probity.offline.export.errors import ExportError
    from probity.offline.export.verify import VerificationError
    from probity.offline.fit import fit_bundle
    from probity.offline.laplace.posterior import FactorizationError
    from probity.offline.network.finite import NotFiniteError
    from probity.offline.runtime.checkpoint import CheckpointError
    from probity.offline.runtime.distributed import DistributedError

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
    "CheckpointError": "probity.offline.runtime.checkpoint",
    "DistributedError": "probity.offline.runtime.distributed",
    "ExportError": "probity.offline.export.errors",
    "FactorizationError": "probity.offline.laplace.posterior",
    "NotFiniteError": "probity.offline.network.finite",
    "VerificationError": "probity.offline.export.verify",
    "fit_bundle": "probity.offline.fit",
    "image_spec": "probity.offline.data.image_spec",
}


def __getattr__(name: str) -> Any:
    """Import what needs torch on first use, so that `probity serve` starts without it."""
    if name in NEED_TORCH:
        return getattr(import_module(NEED_TORCH[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
