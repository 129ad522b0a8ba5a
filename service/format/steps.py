"""The steps from the network to what is served, by which figures on held-out data are compared."""

from .manifest import Task

STEPS: dict[Task, dict[str, str]] = {
    "classification": {"_plain": "plain network", "_map": "temperature alone", "": "as served"},
    "multilabel": {"_plain": "plain network", "_map": "temperature alone", "": "as served"},
    "regression": {"_map": "noise alone", "": "as served"},
}
"""By the ending of a metric's name, such as `calibration_error_map`: what people are told it is of."""
