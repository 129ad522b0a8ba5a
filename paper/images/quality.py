"""How good probabilities are: the paper's metrics at every shift, and how well they tell foreign images apart."""

from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.experiments.frontier.methods import Method
from demur.offline.evaluation.columns import class_columns
from demur.offline.evaluation.diagnostics import auroc, expected_calibration_error
from demur.service.maths.predictive import entropy
from paper.images.problems import Problem

Array = npt.NDArray[Any]
METRICS = ("error", "log_likelihood", "ece", "brier")
REJECTED = np.linspace(0, 0.95, 20)


def score(method: Method, problem: Problem) -> dict[str, Any]:
    """Metrics by the strength of the shift and by its kind, and detection of foreign images by predictive entropy."""
    classes = problem.classes.numpy()
    found = {strength: np.asarray(method.probabilities(x)) for strength, x in problem.tests.items()}
    usual, foreign = found[0], {name: np.asarray(method.probabilities(x)) for name, x in problem.foreign.items()}
    return {
        "shifts": {str(strength): metrics(p, classes) for strength, p in found.items()},
        "kinds": {str(strength): by_kind(p, problem) for strength, p in found.items() if strength},
        "auroc": {name: auroc(entropy(usual), entropy(p)) for name, p in foreign.items()},
        "accuracy_when_rejecting": {name: rejection(usual, classes, p) for name, p in foreign.items()},
    }


def metrics(probabilities: Array, classes: Array) -> dict[str, float]:
    """Error, mean log-likelihood (nats), ECE (15 bins) and Brier score (summed over classes)."""
    columns = class_columns(probabilities, classes)
    return {
        "error": 1 - float(columns["correct"].mean()),
        "log_likelihood": float(columns["log_likelihood"].mean()),
        "ece": expected_calibration_error(probabilities, classes),
        "brier": float(columns["brier"].mean()),
    }


def by_kind(probabilities: Array, problem: Problem) -> dict[str, float]:
    """Mean log-likelihood of each kind of shift that has examples."""
    columns, kinds = class_columns(probabilities, problem.classes.numpy()), problem.kinds.numpy()
    values = columns["log_likelihood"]
    present = ((number, name) for number, name in enumerate(problem.kind_names) if (kinds == number).any())
    return {name: float(values[kinds == number].mean()) for number, name in present}


def rejection(usual: Array, classes: Array, foreign: Array) -> list[float]:
    """Accuracy of what is accepted after rejecting each share of `REJECTED`, the largest predictive entropy first.

    Test and foreign images together; an accepted foreign image counts as a mistake (the paper's rejection-accuracy
    plots).
    """
    scores = np.concatenate([entropy(usual), entropy(foreign)])
    right = np.concatenate([usual.argmax(1) == classes, np.zeros(len(foreign), bool)])
    ranked = right[np.argsort(scores, kind="stable")]
    return [float(ranked[: max(1, round(len(ranked) * (1 - share)))].mean()) for share in REJECTED]
