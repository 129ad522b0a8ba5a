"""Every held-out example as it is served, beside torch's answer: a graph may be wrong for a few inputs only."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from demur.service.inference.graph import NetworkError, NetworkFailed
from demur.service.inference.predictor import Prediction, Predictor

from ..export.verify import VerificationError
from ..laplace.outcomes import Predicted
from ..runtime.arrays import Array, to_numpy
from ..runtime.progress import Track

BLOCK = 256  # examples at once
FAR = 1e-3  # relative, of a mean: float32 rounds to a hundredth of that
# Where rounding moves a unit over its kink, a derivative jumps, and with it a variance: seldom, and seldom by much.
MOVED, MOVED_SHARE = 0.02, 0.01


@dataclass(frozen=True)
class EveryExample:
    """parts: the inputs (n, *shape), in parts; off (n,): how far the means served are from torch's, relative to the
    example's largest, or to that of a typical example where that is more; moved (n,): how far the largest probability,
    or relative the standard deviation, is off; variance (n,): the largest that torch has for an output.
    """

    parts: Sequence[Tensor]
    off: Array
    moved: Array
    variance: Array

    @classmethod
    def served(cls, predictor: Predictor, halves: Sequence[Predicted], track: Track) -> "EveryExample":
        """Predicted by the bundle's predictor; halves: with torch's predictions. Raises `VerificationError`."""
        parts = [half.data.inputs for half in halves]
        blocks = [block for part in parts for block in torch.split(part, BLOCK)]
        try:
            tracked = track(blocks, "Every held-out example", len(blocks))
            found = Prediction.concatenate([predictor.predict(to_numpy(block)) for block in tracked])
        except (NetworkError, NetworkFailed) as error:
            raise VerificationError(
                f"verification: the graph refuses held-out examples that torch predicts: {error}; nothing was published"
            ) from error
        expected = [half.prediction for half in halves]
        mean = np.concatenate([one.mean for one in expected]).astype(np.float64)
        size = np.abs(mean).max(axis=1)
        off = np.abs(found.mean - mean).max(axis=1) / np.maximum(size, max(float(np.median(size)), 1e-30))
        spread = [_spread(one) for one in (found, *expected)]
        moved = np.abs(spread[0] / np.concatenate(spread[1:]) - 1).max(axis=1)
        variance = np.concatenate([one.variance.max(axis=1) for one in expected])
        return cls(parts, *(np.where(np.isfinite(each), each, np.inf) for each in (off, moved, variance)))

    def furthest(self, count: int) -> Tensor:
        """The inputs (count, *shape) whose means are furthest off, a half of them, or whose variances are the largest,
        in their order."""
        off, wide = (np.argsort(-each, kind="stable") for each in (self.off, self.variance))
        return self.at(np.sort(list(dict.fromkeys([*off[: count // 2], *wide[:count], *off]))[:count]))

    def at(self, places: Array) -> Tensor:
        """The inputs at these places, ascending."""
        found, start = [], 0
        for part in self.parts:
            inside = places[(start <= places) & (places < start + len(part))] - start
            found.append(part[torch.as_tensor(inside)])
            start += len(part)
        return torch.cat(found)

    def check(self) -> None:
        """`VerificationError` where probabilities, or standard deviations, are others than torch's, and more often than
        rounding explains."""
        count = int((self.moved > MOVED).sum())
        if count > max(1, MOVED_SHARE * len(self.moved)):
            raise VerificationError(
                f"verification: the uncertainty served differs from torch's by more than {100 * MOVED:.0f} % for "
                f"{count} of {len(self.moved)} held-out examples, expected at most {100 * MOVED_SHARE:.0f} % of them; "
                "nothing was published. A larger prior_precision or fewer weights make the posterior better conditioned"
            )


def _spread(prediction: Prediction) -> Array:
    """(n, K): of a classification 1 + the probabilities, of a regression the standard deviations."""
    if prediction.probabilities is not None:
        return 1 + prediction.probabilities.astype(np.float64)
    assert prediction.std is not None
    return prediction.std.astype(np.float64)
