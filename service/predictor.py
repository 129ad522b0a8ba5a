"""The predictor under its public name; it is in `demur.service.inference.predictor`."""

from .inference.predictor import NonFinitePrediction, PlainPrediction, Prediction, Predictor, check_finite

__all__ = ["NonFinitePrediction", "PlainPrediction", "Prediction", "Predictor", "check_finite"]
