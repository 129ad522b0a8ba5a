"""How well a score ranks mistakes last, and foreign data after all others: areas under curves."""

import numpy as np

from ..runtime.arrays import Array
from .diagnostics import rejection_curve


def aurc(score: Array, wrong: Array) -> float:
    """Area under the risk-coverage curve: (1 / n) sum_i r(s_i); score (n,), wrong (n,) bool.

    r(t) is the error rate of the examples that score at most t (Geifman, Uziel and El-Yaniv, 2019). Smaller is better;
    0 without an error.
    """
    rejected, risk = rejection_curve(score, wrong)
    return float((risk * np.diff(rejected, append=1.0)).sum())


def augrc(score: Array, wrong: Array) -> float:
    """Area under the generalised risk-coverage curve; score (n,), wrong (n,) bool.

    The generalised risk at a threshold t is the share of all examples that are accepted and wrong,

        R(t) = (1 / n) #{i: s_i <= t, i wrong},

    and the area is taken over the share of accepted examples, linear between thresholds: the mean rate of silent
    errors when each share to reject is as likely (Traub et al., "Overcoming common flaws in the evaluation of selective
    classification systems", NeurIPS 2024). Between 0 and 1/2, smaller is better.
    """
    rejected, risk = rejection_curve(score, wrong)
    coverage = np.append(1 - rejected, 0.0)  # descending
    joint = np.append(risk, 0.0) * coverage
    return float(((joint[:-1] + joint[1:]) / 2 * -np.diff(coverage)).sum())


def auroc(usual: Array, shifted: Array) -> float:
    """The chance that a shifted example scores above a usual one, ties half; usual (n,), shifted (m,)."""
    from sklearn.metrics import roc_auc_score

    labels = np.repeat([0, 1], [len(usual), len(shifted)])
    return float(roc_auc_score(labels, np.concatenate([usual, shifted])))


def false_positive_rate(inside: Array, foreign: Array, true_positive_rate: float = 0.95) -> float:
    """FPR at 95 % TPR: the share of foreign examples below the least threshold that accepts 95 % of the test data.

    As the field has it, test data are the positives (Hendrycks et al., 2019). inside (n,), foreign (m,); smaller is
    better.
    """
    from sklearn.metrics import roc_curve

    labels = np.repeat([1, 0], [len(inside), len(foreign)])
    false_positives, true_positives, _ = roc_curve(labels, -np.concatenate([inside, foreign]), drop_intermediate=False)
    return float(false_positives[np.argmax(true_positives >= true_positive_rate)])
