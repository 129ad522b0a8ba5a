"""The curves by which a person judges uncertainty: reliability, rejection, interval coverage; and the areas that say
how well a score ranks mistakes last, and foreign data after all others."""

from dataclasses import dataclass

import numpy as np

from demur.service.maths.predictive import gaussian_interval

from ..runtime.arrays import Array

ECE_BINS = 15


@dataclass(frozen=True)
class Reliability:
    """Occupied bins of the confidence, ascending: mean confidence, accuracy and examples, (b,) each."""

    confidence: Array
    accuracy: Array
    count: Array

    @property
    def ece(self) -> float:
        """sum_b (n_b / n) |accuracy_b - confidence_b| (Guo et al. 2017)."""
        return float(np.average(np.abs(self.accuracy - self.confidence), weights=self.count))


def each_label(probabilities: Array, targets: Array) -> tuple[Array, Array]:
    """Labels as examples of two classes, not having and having it: (n, K), (n, K) -> (n K, 2), (n K,) int."""
    p = probabilities.reshape(-1)
    return np.stack([1 - p, p], axis=1), targets.reshape(-1).astype(int)


def reliability(probabilities: Array, y: Array, bins: int = ECE_BINS) -> Reliability:
    """How often the most probable class is right, by how probable it was said to be: (n, K), (n,) -> `Reliability`."""
    return equal_width(probabilities.max(axis=1), probabilities.argmax(axis=1) == y, bins)


def equal_width(confidence: Array, correct: Array, bins: int = ECE_BINS) -> Reliability:
    """Bins of equal width in the confidence, (n,); correct (n,) bool."""
    return _binned(np.minimum((confidence * bins).astype(int), bins - 1), confidence, correct)


def equal_mass(confidence: Array, correct: Array, bins: int = ECE_BINS) -> Reliability:
    """Bins of as many examples each, in ascending order of the confidence (n,); correct (n,) bool.

    The `ece` of these bins is the adaptive one (Nguyen and O'Connor, 2015): where nearly every confidence is near 1,
    bins of equal width hold nearly all examples in one. Equal confidences share the bin of the first of them, so the
    order of the examples does not matter.
    """
    first = np.sort(confidence).searchsorted(confidence)
    return _binned(first * bins // len(confidence), confidence, correct)


def _binned(number: Array, confidence: Array, correct: Array) -> Reliability:
    _, inverse, count = np.unique(number, return_inverse=True, return_counts=True)
    return Reliability(np.bincount(inverse, confidence) / count, np.bincount(inverse, correct) / count, count)


def expected_calibration_error(probabilities: Array, y: Array) -> float:
    """The gap between confidence and accuracy, averaged over examples; see `Reliability.ece`."""
    return reliability(probabilities, y).ece


def rejection_curve(score: Array, loss: Array) -> tuple[Array, Array]:
    """Share rejected (m,) from 0 up, and the mean loss (m,) of the examples accepted then; score, loss (n,).

    A threshold on the score accepts or rejects equal scores together, so there is one point for each value that occurs.
    """
    order = np.argsort(score, kind="stable")
    last = np.append(np.diff(score[order]) > 0, True)
    accepted = np.flatnonzero(last) + 1
    mean_loss = np.cumsum(np.asarray(loss, np.float64)[order])[last] / accepted
    return 1 - accepted[::-1] / len(score), mean_loss[::-1]


def coverage_curve(mean: Array, std: Array, targets: Array, levels: Array) -> Array:
    """Share of targets inside the central interval of N(mean, std^2) of each nominal level, (L,) -> (L,)."""
    covered = []
    for level in levels:
        low, high = gaussian_interval(mean, std, float(level))
        covered.append(((low <= targets) & (targets <= high)).mean())
    return np.array(covered)


def coverage_band(examples: int, level: float, confidence: float = 0.99) -> tuple[float, float]:
    """The shares of `examples` that intervals of this nominal level hold with this probability, if they are right.

    The central range of a binomial distribution: each tail beyond it has at most (1 - confidence) / 2. Outputs of one
    example are seldom independent, so that examples are counted, not targets.
    """
    counts = np.arange(examples + 1)
    factorials = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, examples + 1)))])
    chances = factorials[-1] - factorials - factorials[::-1]
    chances = np.exp(chances + counts * np.log(level) + (examples - counts) * np.log1p(-level))
    below, above = np.cumsum(chances), np.cumsum(chances[::-1])[::-1]
    tail = (1 - confidence) / 2
    inside = counts[(below > tail) & (above > tail)]
    return float(inside[0] / examples), float(inside[-1] / examples)


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
