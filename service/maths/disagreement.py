"""How the predictions of two models differ, example by example."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from .prediction_sets import LIKELY

Array = npt.NDArray[Any]
Z = 1.96  # of a normal distribution, 95 % lie within so many standard deviations
COMPARED = ("mean", "std", "probabilities", "rejected", "p_value")
"""The arrays of a prediction that tell; a classification has no `std`, a regression no `probabilities`."""


@dataclass(frozen=True)
class Differences:
    """Each (B,). changed: of a classification, whether the most probable class is another; of several labels an
    example, whether any is given or taken away (p >= 0.5); of a regression, whether any mean is farther from the first
    model's than its standard deviation. newly_rejected, newly_accepted: by the second model. p_value_distance: |p - q|.
    """

    changed: Array
    newly_rejected: Array
    newly_accepted: Array
    p_value_distance: Array

    @classmethod
    def of(cls, first: Mapping[str, Array], second: Mapping[str, Array], multilabel: bool) -> "Differences":
        """Of two predictions of the same examples; raises `ValueError` for other shapes, as of other tasks."""
        for name in COMPARED:
            shapes = [None if found.get(name) is None else found[name].shape for found in (first, second)]
            if shapes[0] != shapes[1]:
                raise ValueError(f"{name}: found shapes {shapes[0]} and {shapes[1]}, expected the same")
        rejected = first["rejected"].astype(bool), second["rejected"].astype(bool)
        return cls(
            changed=_changed(first, second, multilabel),
            newly_rejected=~rejected[0] & rejected[1],
            newly_accepted=rejected[0] & ~rejected[1],
            p_value_distance=np.abs(first["p_value"].astype(np.float64) - second["p_value"]),
        )

    def __len__(self) -> int:
        return len(self.changed)

    @classmethod
    def concatenate(cls, parts: "Sequence[Differences]") -> "Differences":
        """Of the examples of all parts, in order."""
        return cls(**{one.name: np.concatenate([getattr(part, one.name) for part in parts]) for one in fields(cls)})

    def sums(self) -> dict[str, float]:
        """The sum of each over the examples."""
        return {one.name: float(getattr(self, one.name).sum()) for one in fields(self)}


def _changed(first: Mapping[str, Array], second: Mapping[str, Array], multilabel: bool) -> Array:
    if first.get("probabilities") is None:
        far = np.abs(first["mean"].astype(np.float64) - second["mean"]) > first["std"]
        return np.asarray(far.any(axis=1))
    p, q = first["probabilities"], second["probabilities"]
    if multilabel:
        return np.asarray(((p >= LIKELY) != (q >= LIKELY)).any(axis=1))
    return np.asarray(p.argmax(axis=1) != q.argmax(axis=1))


def share_interval(count: int, examples: int) -> tuple[float, float]:
    """The 95 % interval of Wilson (1927) for a share that `count` of `examples` showed:
    (p + z^2/2n -+ z sqrt(p (1 - p) / n + z^2/4n^2)) / (1 + z^2/n)."""
    p, n = count / examples, examples
    middle, width = p + Z**2 / (2 * n), Z * math.sqrt(p * (1 - p) / n + Z**2 / (4 * n**2))
    scale = 1 + Z**2 / n
    return max(0.0, (middle - width) / scale), min(1.0, (middle + width) / scale)


def mean_interval(values: Array) -> tuple[float, float]:
    """The 95 % interval of a mean, by the normal approximation: mean -+ z s / sqrt(n)."""
    mean, n = float(values.mean()), len(values)
    width = Z * float(values.std(ddof=1)) / math.sqrt(n) if n > 1 else math.inf
    return mean - width, mean + width
