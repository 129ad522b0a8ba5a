"""Demur's runtime: a bundle in, predictions out. Never imports torch.

>>> from demur.service import Predictor
>>> prediction = Predictor.load("bundles/digits").predict(inputs)

Names are imported when they are first asked for, so that `demur.service.client` does without NumPy and onnxruntime.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .bundle import BundleError, ImagePreprocessing, InputSpec, Manifest, read_bundle, write_bundle
    from .inference.policy import Policy
    from .inference.predictor import NonFinitePrediction, Prediction, Predictor

__all__ = [
    "BundleError",
    "ImagePreprocessing",
    "InputSpec",
    "Manifest",
    "NonFinitePrediction",
    "Policy",
    "Prediction",
    "Predictor",
    "read_bundle",
    "write_bundle",
]
MODULES = {
    **dict.fromkeys(("NonFinitePrediction", "Prediction", "Predictor"), ".inference.predictor"),
    "Policy": ".inference.policy",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(MODULES.get(name, ".bundle"), __name__), name)
