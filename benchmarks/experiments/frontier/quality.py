"""How good a method's predictions are: on usual and shifted images, and at telling foreign ones."""

from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor

from benchmarks.experiments.frontier.data import Problem
from benchmarks.experiments.frontier.methods import Method, in_batches
from benchmarks.experiments.frontier.temperatures import Logits
from demur.offline.data.foreigners import obvious_foreigners
from demur.offline.data.likelihood import class_log_likelihood
from demur.offline.evaluation.diagnostics import auroc, expected_calibration_error
from demur.service.inference.predictor import Predictor
from demur.service.maths.predictive import entropy

Array = npt.NDArray[Any]
OBVIOUS = 500  # images of each kind


def scores(method: Method, problem: Problem, logits: Logits) -> dict[str, Any]:
    """Log-likelihood and calibration error (15 bins of equal width) on every test set, the AUROC of the predictive
    entropy for foreign images, and for a bundle `rejections`. logits: of the plain network, whose labels should stay.
    """
    most = method.facts.get("examples")  # None: all
    classes = problem.classes.numpy()[:most]
    found = {name: method.probabilities(x)[:most] for name, x in _first(problem.tests, most).items()}
    foreign = {name: method.probabilities(x) for name, x in _first(problem.foreign, most).items()}
    labels = {name: logits(x).argmax(1)[:most] for name, x in problem.tests.items()}
    usual = entropy(found["usual"])
    result = {
        "price": method.price,
        "accuracy": float((found["usual"].argmax(1) == classes).mean()),
        "log_likelihood": {name: float(class_log_likelihood(p, classes).mean()) for name, p in found.items()},
        "ece": {name: expected_calibration_error(p, classes) for name, p in found.items()},
        "auroc": {name: auroc(usual, entropy(p)) for name, p in foreign.items()},
        "labels_differ": float(np.mean([(p.argmax(1) != labels[name]).mean() for name, p in found.items()])),
        **method.facts,
    }
    return result | ({} if method.predictor is None else rejections(method.predictor, problem))


def _first(sets: dict[str, Tensor], most: int | None) -> dict[str, Tensor]:
    return sets if most is None else {name: x[:most] for name, x in sets.items()}


def rejections(predictor: Predictor, problem: Problem) -> dict[str, Any]:
    """By the bundle's own score and threshold: the AUROC for foreign images, and the shares that are rejected of usual,
    foreign and obviously foreign images (`demur.offline.data.foreigners`)."""
    usual = problem.tests["usual"]
    sets = {"usual": usual} | problem.foreign | obvious_foreigners(usual[:OBVIOUS], 0)
    predicted = {name: [predictor.predict(part.numpy()) for part in in_batches(x)] for name, x in sets.items()}
    found = {name: np.concatenate([part.score for part in parts]) for name, parts in predicted.items()}
    rejected = {name: np.concatenate([part.rejected for part in parts]) for name, parts in predicted.items()}
    return {
        "score": predictor.manifest.calibration.score,
        "score_auroc": {name: auroc(found["usual"], found[name]) for name in problem.foreign},
        "rejected": {name: float(some.mean()) for name, some in rejected.items()},
    }
