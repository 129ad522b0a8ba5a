"""Probity's runtime: a bundle in, predictions out. Never imports torch.

>>> from service import Predictor
>>> prediction = Predictor.load("bundles/digits").predict(inputs)
"""

from service.bundle import BundleError, ImagePreprocessing, InputSpec, Manifest, read_bundle, write_bundle
from service.predictor import NonFinitePrediction, Prediction, Predictor

__all__ = [
    "BundleError",
    "ImagePreprocessing",
    "InputSpec",
    "Manifest",
    "NonFinitePrediction",
    "Prediction",
    "Predictor",
    "read_bundle",
    "write_bundle",
]
