"""Probity's offline job: a trained network and data in, a bundle out. Needs torch; `FitConfig` alone does not.

>>> from offline import FitConfig, fit_bundle
>>> fit_bundle(model, train_loader, "bundles/digits", calibration_loader=held_out, config=FitConfig(seed=0))
"""

from typing import TYPE_CHECKING, Any

from offline.config import FitConfig
from service.bundle import ImagePreprocessing, InputSpec

if TYPE_CHECKING:
    from offline.fit import fit_bundle

__all__ = ["FitConfig", "ImagePreprocessing", "InputSpec", "fit_bundle"]


def __getattr__(name: str) -> Any:
    """`fit_bundle` is imported on first use, so that `probity serve` starts without torch."""
    if name == "fit_bundle":
        from offline.fit import fit_bundle

        return fit_bundle
    raise AttributeError(f"module 'offline' has no attribute {name!r}")
