"""Signs that calibration data are not what they should be: like what is served, and not the training data."""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from ..runtime.arrays import Array, to_numpy
from .held_out import HeldOut
from .likelihood import Classification, Likelihood, Multilabel

ENOUGH = 10  # examples a class: with equal shares, a given one is absent by chance with a probability of e^-10
MOST_NAMED = 10
Names = Sequence[str] | None
# Few equal rows are chance, and data of few distinct rows repeat themselves.
LEAST_EQUAL, LEAST_RATIO = 0.1, 2.0
WIDEST, NARROWEST = 10.0, 0.05  # spans of the inputs, relative to those of the training data


@dataclass
class CalibrationCheck:
    """Compares calibration examples with those of the training pass, which it watches; it keeps digests alone."""

    data: HeldOut
    _known: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._rows = [hash(row.tobytes()) for row in to_numpy(self.data.inputs)]
        self._wanted = set(self._rows)

    def watch(self, pairs: Iterable[tuple[Tensor, Tensor]]) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield the pairs of the training pass."""
        for inputs, targets in pairs:
            for row in to_numpy(inputs):
                digest = hash(row.tobytes())
                if digest in self._wanted:
                    self._known.add(digest)
            yield inputs, targets

    def warnings(self, training: tuple[float, float] | None) -> list[str]:
        """After the pass: about examples of the training data, and another scale.

        training: the smallest and the largest value of its inputs, None of tokens.
        """
        return [*self._equal(), *([] if training is None else self._scale(*training))]

    def _equal(self) -> Iterator[str]:
        equal = sum(digest in self._known for digest in self._rows) / len(self._rows)
        counts = Counter(self._rows)
        repeated = sum(counts[digest] > 1 for digest in self._rows) / len(self._rows)
        if equal >= LEAST_EQUAL and equal > LEAST_RATIO * repeated:
            yield (
                f"{100 * equal:.0f} % of the calibration examples are in the training data: the network knows them, so "
                "that threshold, noise and temperature promise too much; give examples that it was not trained on"
            )
        if repeated >= LEAST_EQUAL and repeated > LEAST_RATIO * equal:
            yield (
                f"of {len(self._rows)} calibration examples only {len(counts)} are different: each copy counts as one "
                "more example, so that threshold, sets and certificates promise too much; give each once, without a "
                "sampler with replacement, and where several workers read, a part to each"
            )

    def _scale(self, least: float, most: float) -> Iterator[str]:
        low, high = (float(end) for end in torch.aminmax(self.data.inputs))
        if most > least and not NARROWEST <= (high - low) / (most - least) <= WIDEST:
            yield (
                f"the inputs of the calibration data are between {low:.4g} and {high:.4g}, those of the training data "
                f"between {least:.4g} and {most:.4g}: scale both in the same way"
            )


def target_warnings(targets: Array, likelihood: Likelihood, names: Names = None) -> list[str]:
    """About targets (n,) or (n, K) of the calibration data that are all the same; names (K): of classes or labels."""
    if isinstance(likelihood, Multilabel):
        same = [k for k in range(likelihood.outputs) if len(np.unique(targets[:, k])) == 1]
        if not same:
            return []
        alike = f"all calibration examples are alike in label {_called(same, names)}"
        return [f"{alike}: nothing can be said of how well it is predicted"]
    if len(np.unique(targets, axis=0)) > 1:
        return _absent(targets, likelihood, names) if isinstance(likelihood, Classification) else []
    what = f"of the value {targets[0]}"
    if isinstance(likelihood, Classification):
        what = f"of class {_called([int(targets[0])], names)}"
    return [
        f"all calibration examples are {what}: the data may be sorted, and the threshold is of nothing else; shuffle "
        "before they are split"
    ]


def _called(places: Sequence[int], names: Names) -> str:
    """The first of these classes, labels or values, by name where they have names."""
    shown = [str(k) if names is None else repr(names[k]) for k in places[:MOST_NAMED]]
    return ", ".join([*shown, *(["..."] if len(places) > MOST_NAMED else [])])


def _absent(targets: Array, likelihood: Classification, names: Names) -> list[str]:
    """About classes without an example, where there are enough examples for all."""
    absent = sorted({*range(likelihood.outputs)} - {*targets.tolist()})
    if not absent or len(targets) < ENOUGH * likelihood.outputs:
        return []
    return [
        f"no calibration example is of class {_called(absent, names)}: the threshold and the sets know nothing "
        "of it; give examples of every class"
    ]


def quality_warnings(
    metrics: Mapping[str, float], mean: Array, targets: Array, likelihood: Likelihood, names: Names = None
) -> list[str]:
    """About a network that predicts the calibration data no better than a guess without inputs.

    mean (n, K): its outputs; of several targets, each is looked at by itself. names (K): of classes, labels or values.
    """
    if isinstance(likelihood, Classification):
        several = isinstance(likelihood, Multilabel)
        uniform = -likelihood.outputs * math.log(2) if several else -math.log(likelihood.outputs)
        found = metrics["calibration_log_likelihood_map"]
        if found > uniform:
            return []
        figures = f"the log-likelihood is {found:.4g}, that of a uniform guess {uniform:.4g}"
    else:
        errors, spreads = np.sqrt(np.square(mean - targets).mean(axis=0)), np.std(targets, axis=0)
        worse = np.flatnonzero((errors > spreads) & (spreads > 0))
        if not len(worse):
            return []
        first, which = worse[0], "" if likelihood.outputs == 1 else f" of target {_called(worse[:1].tolist(), names)}"
        figures = f"the root mean square error{which} is {errors[first]:.4g}, that of their mean {spreads[first]:.4g}"
    return [
        f"the network predicts the calibration data no better than a guess: {figures}; are targets and inputs in the "
        "same order, and as for training?"
    ]
