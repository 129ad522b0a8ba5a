"""Mistakes of clients that have a name: images whose colours are inverted, rows whose columns are in another order.

They look ordinary to scores that know ordinary inputs alone. A linear discriminant of the coordinates of an example,
which the distance takes anyway (`demur.offline.features.coordinates`), is taught each mistake m by making it,

    s_m(t) = w_m^T std(t),  w_m = (S + r I)^-1 (E[std(t_m)] - E[std(t)]),

t (T,) the coordinates of held-out inputs and t_m those of the same inputs with the mistake, S the covariance of std(t):
Fisher's. It serves only where it tells inputs that five-fold cross-validation left out, by an AUROC of at least
`LEAST_AUROC`: images of one colour in three channels show no channels in another order. What the graph gives, in nats
of likelihood, is above 0 where an input looks more like the mistake than like an ordinary one; of these, `NAMED` are
above 0 of any mistake, by the tail of left-out ones (`demur.service.maths.score_distribution`): examples that a
direction is fitted to look less alike to the mistake than new ones do.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from demur.service.bundle import InputPart
from demur.service.maths.score_distribution import ScoreDistribution
from demur.service.maths.scores import MistakeName

from ..data.changes import Change, changed, kind_of, stream, value_range
from ..network.invented import for_invented
from ..runtime.arrays import to_numpy

FOLDS, FOLDS_STREAM = 5, 8
LEAST_AUROC = 0.8
NAMED = 0.004  # of ordinary inputs, of all mistakes together: it came out as up to .005
RIDGE = 0.1  # r, of standardised coordinates
LEAST_DEVIATION = 1e-3  # of a coordinate: less is rounding
LEAST_EXAMPLES, MOST_EXAMPLES = 100, 1000
COLOURS = 3


def image_mistakes(low: Tensor, high: Tensor) -> dict[MistakeName, Change]:
    """Of images whose channels have the ranges `low` to `high` (1, C, 1, 1): solarised, values in the upper half of a
    range are inverted; channels swapped, the last one's values are in the place of the first's, each in the range of
    its place, as BGR for RGB."""
    both, width = low + high, (high - low).clamp(min=torch.finfo(low.dtype).tiny)
    found: dict[MistakeName, Change] = {
        "inverted": lambda x, _: both - x,
        "upside-down": lambda x, _: x.flip(2),
        "solarised": lambda x, _: torch.where(x > both / 2, both - x, x),
    }
    if low.shape[1] == COLOURS:
        found["channels-swapped"] = lambda x, _: low + (high - low) * ((x - low) / width).flip(1)
    return found


def exchange_columns(x: Tensor, generator: torch.Generator) -> Tensor:
    """Two columns of each row, drawn at random."""
    count, columns = x.shape
    first = torch.randint(columns, (count,), generator=generator)
    second = (first + torch.randint(1, columns, (count,), generator=generator)) % columns
    order = torch.arange(columns).repeat(count, 1)
    rows = torch.arange(count)
    order[rows, first], order[rows, second] = second, first
    return x.gather(1, order.to(x.device))


def scale_column(factor: float) -> Change:
    """One column of each row, drawn at random, times this."""

    def scale(x: Tensor, generator: torch.Generator) -> Tensor:
        place = torch.randint(x.shape[1], (len(x), 1), generator=generator)
        return torch.scatter_add(x, 1, place.to(x.device), (factor - 1) * x.gather(1, place.to(x.device)))

    return scale


TABLES: dict[MistakeName, Change] = {
    "columns-reversed": lambda x, _: x.flip(1),
    "columns-exchanged": exchange_columns,
    "column-times-10": scale_column(10.0),
    "column-by-10": scale_column(0.1),
}


def possible_mistakes(x: Tensor, parts: tuple[InputPart, ...] | None) -> dict[MistakeName, Change]:
    """Those that ordinary inputs (n, *input_shape) can teach: of images of one or three channels, and of rows of a
    table; none where the inputs are few."""
    kind = "other" if parts is not None or len(x) < LEAST_EXAMPLES else kind_of(x)
    if kind == "images" and x.shape[1] in (1, COLOURS):
        return image_mistakes(*(end.double() for end in value_range(x)))
    return TABLES if kind == "table" and x.shape[1] > 1 else {}


@dataclass(frozen=True)
class Mistakes:
    """M discriminants: weights (T, M), offset (M,)."""

    names: tuple[MistakeName, ...]
    weights: Tensor
    offset: Tensor

    def __call__(self, t: Tensor) -> Tensor:
        """(B, T) -> (B, M), in the precision of the fields."""
        return torch.addmm(self.offset, t, self.weights)

    @classmethod
    def fit(
        cls,
        read: Callable[[Tensor], Tensor],
        network: nn.Module,
        inputs: Tensor,
        possible: Mapping[MistakeName, Change],
        seed: int,
        rows: int,
    ) -> "Mistakes | None":
        """read: from inputs to coordinates, float64 on the CPU; inputs (n, *input_shape): ordinary ones that trained
        nothing, `rows` at once. None where no mistake can be told."""
        inputs = inputs[:MOST_EXAMPLES]
        ordinary, sturdy, found = read(inputs), for_invented(network, inputs), dict[MistakeName, _Told]()
        for number, (name, make) in enumerate(possible.items()):
            generator, mistaken = stream(seed, number), list[Tensor]()
            for part in torch.split(inputs, rows):
                made = changed(part, make, generator)
                if not has_finite_outputs(sturdy, made):
                    break
                mistaken.append(read(made))
            else:
                told = _told(ordinary, torch.cat(mistaken), seed)
                found |= {} if told is None else {name: told}
        if not found:
            return None
        columns = [told.column(ordinary, math.log(len(found) / NAMED)) for told in found.values()]
        weights, offsets = zip(*columns, strict=True)
        return cls(tuple(found), torch.stack(weights, dim=1), torch.stack(offsets))


def has_finite_outputs(network: Callable[[Tensor], Tensor], inputs: Tensor) -> bool:
    """Whether all outputs are finite; False where the network, taken `for_invented` inputs, refuses them."""
    try:
        with torch.no_grad():
            return bool(torch.isfinite(network(inputs)).all())
    except torch.OutOfMemoryError:  # says nothing about the inputs
        raise
    except (RuntimeError, ValueError, IndexError, ArithmeticError, AssertionError):  # it refuses such inputs itself
        return False


@dataclass(frozen=True)
class _Told:
    """A mistake that w (T,) tells; middle: of ordinary and mistaken means, where both are as likely; distribution: of
    ordinary examples that were left out."""

    w: Tensor
    middle: float
    distribution: ScoreDistribution

    def column(self, ordinary: Tensor, surprise: float) -> tuple[Tensor, Tensor]:
        """Weights (T,) and offset of what is above 0 beyond this surprise and the middle."""
        least = max(self.middle, self.distribution.value_at(surprise))
        return self.w, -(ordinary.mean(0) @ self.w + least)


def _told(ordinary: Tensor, mistaken: Tensor, seed: int) -> _Told | None:
    """Both (n, T); None where left-out examples are not told."""
    fold = torch.randperm(len(ordinary), generator=stream(seed, FOLDS_STREAM)) % FOLDS
    usual, wrong = torch.zeros(2, len(ordinary), dtype=ordinary.dtype)
    for number in range(FOLDS):
        own = fold == number
        w = _discriminant(ordinary[~own], mistaken[~own])
        centre = ordinary[~own].mean(0)
        usual[own], wrong[own] = (ordinary[own] - centre) @ w, (mistaken[own] - centre) @ w
    distribution = ScoreDistribution.of(to_numpy(usual))
    if distribution is None or _auroc(usual, wrong) < LEAST_AUROC:
        return None
    w = _discriminant(ordinary, mistaken)
    return _Told(w, float((mistaken.mean(0) - ordinary.mean(0)) @ w) / 2, distribution)


def _discriminant(ordinary: Tensor, mistaken: Tensor) -> Tensor:
    """w (T,), of coordinates as they are."""
    deviation = ordinary.std(0, correction=0).clamp(min=LEAST_DEVIATION)
    standard = (ordinary - ordinary.mean(0)) / deviation
    covariance = standard.T @ standard / len(standard)
    covariance.diagonal().add_(RIDGE)
    moved = (mistaken.mean(0) - ordinary.mean(0)) / deviation
    w: Tensor = torch.linalg.solve(covariance, moved) / deviation
    return w


def _auroc(usual: Tensor, wrong: Tensor) -> float:
    """P(wrong > usual), ties counting half."""
    ordered = usual.sort().values
    below = sum(torch.searchsorted(ordered, wrong, right=right).double().mean() for right in (False, True))
    return float(below / (2 * len(usual)))
