"""The predictor under its public name; it is in `demur.service.inference.predictor`."""

from .inference.predictor import NonFinitePrediction, Prediction, Predictor, check_finite

__all__ = ["NonFinitePrediction", "Prediction", "Predictor", "check_finite"]
