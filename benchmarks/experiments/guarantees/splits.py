"""Random splits of a pool of predictions: how often what the service guarantees holds, and how often it should."""

import functools
import math
from collections.abc import Iterable
from statistics import NormalDist
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.core.settings import Values
from benchmarks.experiments.guarantees.data import Pool, ValuePool
from demur.service.maths.certified import NotCertified, certify
from demur.service.maths.class_rules import LEAST_EXAMPLES, ClassRules
from demur.service.maths.outcomes import Verdicts
from demur.service.maths.prediction_sets import (
    ConformalIntervals,
    PredictionSets,
    conformal_rank,
    set_scores,
    tuned_sets,
)
from demur.service.maths.rejection import RejectionRule

Array = npt.NDArray[Any]
RATES, LEVELS, ACCURACIES = (0.01, 0.05, 0.1), (0.9, 0.95, 0.99), (0.95, 0.98, 0.99)
CONFIDENCE = 0.95
CENTRAL = 0.95  # of the intervals that theory gives
PLAIN_APS = (0.0, 1)


@functools.cache
def expected_counts(m: int, k: int, n: int) -> tuple[int, int]:
    """The central 95 % of how many of m new values are below the k-th smallest of n, or above the k-th largest.

    P(x) = C(x + k - 1, x) C(m - x + n - k, m - x) / C(m + n, m), BetaBinomial(m, k, n + 1 - k), for exchangeable
    values without ties: also where all m + n are drawn from a finite pool without replacement.
    """
    if k == 0:
        return 0, 0
    x = np.arange(m + 1)
    return _central(_log_choose(x + k - 1, x) + _log_choose(m - x + n - k, m - x) - _log_choose(m + n, m))


def binomial_counts(n: int, share: float) -> tuple[int, int]:
    """The central 95 % of Binomial(n, share)."""
    x = np.arange(n + 1)
    return _central(_log_choose(n, x) + x * math.log(share) + (n - x) * math.log1p(-share))


def _central(log_probabilities: Array) -> tuple[int, int]:
    """Of the counts 0, 1, ..., whose logarithmic probabilities these are."""
    cumulative, tail = np.exp(log_probabilities).cumsum(), (1 - CENTRAL) / 2
    low, high = cumulative.searchsorted([tail, 1 - tail])
    return int(low), int(min(high, len(cumulative) - 1))


def _log_choose(n: Array | int, k: Array | int) -> Array:
    factorials = _log_factorials(int(np.max(n)) + 1)
    chosen: Array = factorials[n] - factorials[k] - factorials[np.asarray(n) - k]
    return chosen


@functools.cache
def _log_factorials(count: int) -> Array:
    """log 0!, log 1!, ..."""
    return np.concatenate([[0.0], np.log(np.arange(1, count)).cumsum()])


def verdicts(pool: Pool, rows: Array) -> Verdicts:
    """Of these examples of the pool, in ascending order of the score."""
    rows = rows[np.argsort(pool.score[rows], kind="stable")]
    labels = pool.probabilities[rows].argmax(1)
    return Verdicts(pool.score[rows], labels.astype(np.int32), labels == pool.targets[rows])


def split(n: int, sizes: tuple[int, ...], rng: np.random.Generator) -> list[Array]:
    """Random disjoint rows of these sizes, and the rest."""
    return np.split(rng.permutation(n), np.cumsum(sizes))


def rates(pool: Pool, splits: Iterable[int], rng: np.random.Generator) -> list[Values]:
    """False-reject rates with one threshold and with one for each class.

    inside: the share of splits (by class: of splits and groups of classes) in the interval that theory gives. classes:
    the rate among all test examples predicted to be of a class.
    """
    classes = pool.probabilities.shape[1]
    found = {(rate, kind): _Rates(classes) for rate in RATES for kind in ("one", "by class")}
    labels = pool.probabilities.argmax(1)
    for _ in splits:
        tuning, calibration, test = split(len(labels), (pool.tuning, pool.calibration), rng)
        own, other = verdicts(pool, calibration), verdicts(pool, tuning)
        predicted, score = labels[test], pool.score[test]
        for rate in RATES:
            rule = RejectionRule(own.scores, rate)
            found[rate, "one"].add(rule.rejected(score), predicted, np.zeros(classes, int), [len(own)], rate)
            least = max(LEAST_EXAMPLES, math.ceil(1 / rate) - 1)
            by_class = ClassRules.of(own, other, classes, rate, least)
            sizes = [len(group.scores) for group in by_class.rules]
            rejected = score > by_class.thresholds(predicted)
            found[rate, "by class"].add(rejected, predicted, by_class.groups, sizes, rate)
    return [{"rate": rate, "rule": kind, **kept.summary()} for (rate, kind), kept in found.items()]


def value_rates(pool: ValuePool, splits: Iterable[int], rng: np.random.Generator) -> list[Values]:
    """False-reject rates of a regression, which has one threshold; `inside` as for `rates`."""
    found, only = {rate: _Rates(1) for rate in RATES}, np.zeros(1, int)
    for _ in splits:
        calibration, test = split(len(pool.score), (pool.calibration,), rng)
        scores = np.sort(pool.score[calibration])
        for rate, kept in found.items():
            rejected = RejectionRule(scores, rate).rejected(pool.score[test])
            kept.add(rejected, np.zeros(len(test), int), only, [len(scores)], rate)
    return [{"rate": rate, "rule": "one", **kept.summary()} for rate, kept in found.items()]


class _Rates:
    """Gathers the splits of one rule at one rate."""

    def __init__(self, classes: int) -> None:
        self._shares: list[float] = []
        self._inside: list[bool] = []
        self._rejected, self._all = np.zeros(classes, int), np.zeros(classes, int)

    def add(self, rejected: Array, predicted: Array, groups: Array, sizes: list[int], rate: float) -> None:
        """groups (K,): of the classes; sizes: calibration examples of each group."""
        self._shares.append(float(rejected.mean()))
        self._rejected += np.bincount(predicted[rejected], minlength=len(groups))
        self._all += np.bincount(predicted, minlength=len(groups))
        for group, n in enumerate(sizes):
            among = rejected[groups[predicted] == group]
            low, high = expected_counts(len(among), math.floor(rate * (n + 1) + 1e-9), n)
            self._inside.append(bool(low <= among.sum() <= high))

    def summary(self) -> Values:
        shares = np.array(self._shares)
        return {
            "mean": float(shares.mean()),
            "std": float(shares.std()),
            "inside": float(np.mean(self._inside)),
            "classes": (self._rejected / np.maximum(1, self._all)).tolist(),
        }


def certificates(pool: Pool, draws: Iterable[int], rng: np.random.Generator) -> list[Values]:
    """How often the accuracy of all that a certified threshold accepts in the pool is what the certificate says.

    Tuning and calibration examples are drawn with replacement: the pool then is the population they come from, and its
    accuracy the truth. Drawn without, they would be more like the pool than held-out data are like the traffic.
    """
    whole = verdicts(pool, np.arange(len(pool.score)))
    accuracy = whole.correct.cumsum() / np.arange(1, len(whole) + 1)
    found: dict[float, list[tuple[float, float]]] = {asked: [] for asked in ACCURACIES}
    sizes, count = (pool.tuning, pool.calibration), 0
    for _ in draws:
        count += 1
        tuning, calibration = (verdicts(pool, rng.integers(len(whole), size=size)) for size in sizes)
        for asked in ACCURACIES:
            try:
                threshold = certify(calibration, tuning, asked, CONFIDENCE).threshold
            except NotCertified:
                continue
            accepted = int(whole.scores.searchsorted(threshold, "right"))
            found[asked].append((accuracy[accepted - 1], accepted / len(whole)))
    return [{"accuracy": asked, **_certified(asked, kept, count)} for asked, kept in found.items()]


def _certified(asked: float, kept: list[tuple[float, float]], draws: int) -> Values:
    """holds: the share of draws in which nothing was certified that is not so."""
    wrong = sum(accuracy < asked for accuracy, _ in kept)
    middle = np.mean(kept, axis=0).tolist() if kept else [None, None]
    return {
        "certified": len(kept) / draws,
        "holds": 1 - wrong / draws,
        "accepted_accuracy": middle[0],
        "accepted": middle[1],
    }


def sets(pool: Pool, splits: Iterable[int], rng: np.random.Generator) -> list[Values]:
    """Coverage and size of prediction sets: RAPS as the fit tunes it, and plain APS."""
    found: dict[tuple[float, str], list[tuple[float, float, bool]]] = {
        (level, kind): [] for level in LEVELS for kind in ("tuned", "plain")
    }
    for _ in splits:
        tuning, calibration, test = split(len(pool.score), (pool.tuning, pool.calibration), rng)
        chosen = {"tuned": tuned_sets(pool.probabilities[tuning], pool.targets[tuning]), "plain": PLAIN_APS}
        for kind, (penalty, unpenalised) in chosen.items():
            own = set_scores(pool.probabilities[calibration], penalty, unpenalised)
            made = PredictionSets(own[np.arange(len(own)), pool.targets[calibration]], penalty, unpenalised)
            for level in LEVELS:
                members = made.members(pool.probabilities[test], level)
                hits = members[np.arange(len(test)), pool.targets[test]]
                lowest = _lowest(len(test), len(own), level)
                found[level, kind].append((hits.mean(), members.sum(1).mean(), hits.sum() >= lowest))
    return [{"level": level, "kind": kind, **_covered(kept)} for (level, kind), kept in found.items()]


def _lowest(m: int, n: int, level: float) -> int:
    """The lower end of the interval of how many of m are covered."""
    return expected_counts(m, conformal_rank(n, level), n)[0]


def _covered(kept: list[tuple[float, float, bool]]) -> Values:
    """not_below: the share of splits whose coverage is at least the lower end of the interval that theory gives."""
    values = np.array(kept, np.float64)
    coverage, size, not_below = values.mean(0).tolist()
    return {"coverage": coverage, "std": float(values[:, 0].std()), "size": size, "not_below": not_below}


def intervals(pool: ValuePool, splits: Iterable[int], rng: np.random.Generator) -> list[Values]:
    """Coverage of conformal intervals over the splits, and of Gaussian ones over the whole pool."""
    residuals = np.abs(pool.targets - pool.mean) / pool.std
    conformal: dict[float, list[tuple[float, bool]]] = {level: [] for level in LEVELS}
    for _ in splits:
        calibration, test = split(len(residuals), (pool.calibration,), rng)
        for level in LEVELS:
            half_widths = ConformalIntervals(residuals[calibration]).half_widths(level)
            assert half_widths is not None
            hits = int((residuals[test, 0] <= half_widths[0]).sum())
            k = conformal_rank(len(calibration), level)
            low, high = expected_counts(len(test), k, len(calibration))
            conformal[level].append((hits / len(test), low <= hits <= high))
    return [_intervals(level, conformal[level], residuals[:, 0]) for level in LEVELS]


def _intervals(level: float, kept: list[tuple[float, bool]], residuals: Array) -> Values:
    """gaussian_interval: the central 95 % of the coverage that Gaussian intervals have of so many examples if true."""
    coverage, inside = np.mean(kept, axis=0).tolist()
    expected = np.array(binomial_counts(len(residuals), level)) / len(residuals)
    gaussian = float((residuals <= NormalDist().inv_cdf((1 + level) / 2)).mean())
    return {
        "level": level,
        "conformal": coverage,
        "inside": inside,
        "gaussian": gaussian,
        "gaussian_interval": expected.tolist(),
    }
