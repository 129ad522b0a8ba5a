"""Where an example lies, seen from the activations of some layers: a few coordinates without scale or unit.

For layer l with activations h, and means, scales and directions from training examples,

    z_l = (h / |h| - m_l) / s_l,  m_l = E[h / |h|],  s_l^2 = E|h / |h| - m_l|^2,
    t = (U^T z,  std(log |z - U U^T z|),  max(0, std(log |V^T z_1|)),  w_1 std(log |h_1|), ..., w_L std(log |h_L|)),

z all layers side by side, U (F, q) their leading directions, std(a) = (a - E[a]) / sqrt(Var[a]). The direction of
activations tells what the network sees, and how much of it lies outside what training examples span. Their length is
what an input that is ten times too large changes; it is among the coordinates of the distance alone, w = 0.3.

Where h_1 are a few numbers that are the network's inputs, as in a row of a table, each is standardised first, whatever
its unit; sqrt(2) h_1 / sqrt(|h_1|^2 + E|h_1|^2) takes the place of h_1 / |h_1|, and |h_1| that of log |h_1|, since rows
next to the mean have no direction, and a logarithm that no other row has, though nothing is more usual. w_1 = 1, and
only what is above the mean length counts: of many columns, hardly a row is next to the mean.
V V^T = (E[z_1 z_1^T] + r I)^-1, r a hundredth of the mean eigenvalue: |V^T z_1| is the Mahalanobis distance of these
directions, of which only what is above the mean counts. It tells columns in another order, and values that do not occur
together though each is usual alone. With the same for other layers, an image network told digits from clothes worse.
It is a coordinate of the distance alone: in the variance of a linear model, its bend showed as a cusp.

Of images and series, the two numbers of their texture (`demur.offline.features.activations.texture`) are coordinates
of the distance too, standardised, with weight w.

U and V are fitted on every other example, and |z - U U^T z| and |V^T z_1| standardised on those between: where there
are fewer examples than activations, both are small for their own examples, and every new one would be far away.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from .activations import LARGEST, SMALLEST, norm

DIRECTIONS = 32
EXAMPLES_A_DIRECTION = 8
LENGTH_WEIGHT = 0.3  # w, of activations and texture: at 1, turned images are told worse
LEAST_SPREAD = 1e-6  # of a column, relative to its mean: less is rounding
MOST_COLUMN = 1e15  # of standardised inputs; their squares have a sum in float32
RIDGE = 0.01  # r, relative to the mean eigenvalue
# Lengths that are alike to this share, as behind a normalisation, tell nothing but rounding.
LEAST_DEVIATION = 0.02
MOST_DEVIATIONS = 50.0  # beyond, everything is equally far, and a cosine has no digits in float32
LEAST_REST = 1e-3  # relative to the root mean square of a z_l: less is rounding
LEAST_OUTSIDE = 1e-2  # of one example, where the root mean square of z_l is 1: float32 leaves few digits of less
LEAST_SCALE = 1e-4  # s_l, of directions of length 1: less is rounding, behind many layers


def converted(value: Any, like: Tensor) -> Any:
    """All tensors of a dataclass in the precision and on the device of another one."""
    if isinstance(value, Tensor):
        return value.to(like)
    if isinstance(value, tuple):
        return tuple(converted(each, like) for each in value)
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{each.name: converted(getattr(value, each.name), like) for each in fields(value)})
    return value


def side_by_side(one: Tensor, other: Tensor, first: int = 0, second: int = 0) -> Tensor:
    """Two blocks of columns; the `first` rows of one and the `second` of the other come before all others."""
    left, right = functional.pad(one, (0, other.shape[1])), functional.pad(other, (one.shape[1], 0))
    return torch.cat([left[:first], right[:second], left[first:], right[second:]])


class Combination(NamedTuple):
    """A sum of values, row (n,), w, whether it counts above the mean alone, whether by the examples between, and below
    what it is alike, if examples come within a tenth of it."""

    row: Tensor
    weight: float = LENGTH_WEIGHT
    above: bool = False
    by_between: bool = False
    alike: float = -math.inf


@dataclass(frozen=True)
class Standardised:
    """w std(a), within `MOST_DEVIATIONS`, of m combinations a of n values: matrix (n, m), offset (m,); least (m,): 0
    for those that count above the mean alone, and what those are that are alike below; None where there are none."""

    matrix: Tensor
    offset: Tensor
    least: Tensor | None = None

    @classmethod
    def of(cls, values: Tensor, combinations: Sequence[Combination]) -> "Standardised":
        """values (N, n) of training examples."""
        columns, lowest, low = [], list[float](), -MOST_DEVIATIONS
        for each in combinations:
            known = (_halves(values)[1] if each.by_between else values) @ each.row
            near = float(known.min()) < each.alike + math.log(10)
            known = known.clamp(min=each.alike) if near else known
            mean = known.mean()
            scale = each.weight / (known - mean).square().mean().sqrt().clamp(min=LEAST_DEVIATION)
            columns.append(torch.cat([each.row * scale, (-mean * scale).reshape(1)]))
            lowest.append(0.0 if each.above else max(low, float((each.alike - mean) * scale)) if near else low)
        found = torch.stack(columns, dim=1) if columns else values.new_zeros(values.shape[1] + 1, 0)
        return cls(found[:-1], found[-1], found.new_tensor(lowest) if max(lowest, default=low) > low else None)

    def __call__(self, values: Tensor) -> Tensor:
        """(B, n) -> (B, m)."""
        found = torch.addmm(self.offset, values, self.matrix).clamp(-MOST_DEVIATIONS, MOST_DEVIATIONS)
        return found if self.least is None else torch.maximum(found, self.least)

    def beside(self, other: "Standardised") -> "Standardised":
        """Of the values of both."""
        lows = [torch.full_like(s.offset, -MOST_DEVIATIONS) if s.least is None else s.least for s in (self, other)]
        least = None if self.least is None and other.least is None else torch.cat(lows)
        return Standardised(side_by_side(self.matrix, other.matrix), torch.cat([self.offset, other.offset]), least)


NOTHING = Standardised(torch.zeros(0), torch.zeros(0))


@dataclass(frozen=True)
class Columns:
    """(h - E[h]) / sqrt(Var[h]) of each input, over the root of the mean square of a row's length: mean and deviation
    (F,)."""

    mean: Tensor
    deviation: Tensor

    @classmethod
    def fit(cls, h: Tensor) -> "Columns":
        """h (N, F) of training examples; what is always alike keeps its unit, or has that of rounding."""
        mean, deviation = h.mean(0), h.std(0, correction=0)
        least = LEAST_SPREAD * mean.abs()
        deviation = torch.where(deviation > least, deviation, least.clamp(min=1.0))
        usual = ((h - mean) / deviation).square().sum(1).mean().sqrt()
        return cls(mean, deviation * torch.where(usual > LEAST_SPREAD, usual, 1.0))

    def __call__(self, h: Tensor) -> Tensor:
        """(B, F) -> (B, F)."""
        return ((h - self.mean) / self.deviation).clamp(-MOST_COLUMN, MOST_COLUMN)


@dataclass(frozen=True)
class Coordinates:
    """Those of one variance, or of two that share what is the same for both (`beside`).

    widths (L): F_l; scale (L, F): s_l for the activations of layer l, else 0; centre (F,): m / s; directions: U (F', q)
    of each variance, of the activations from `starts` on; rests: whether the length outside them counts; counted: of
    so many layers the lengths do; columns: of the network's inputs, None where they are no layer, else layer `place`;
    whitening: V of these; texture: whether that of the inputs comes before the layers.
    """

    widths: tuple[int, ...]
    scale: Tensor
    centre: Tensor
    directions: tuple[Tensor, ...] = ()
    starts: tuple[int, ...] = (0,)
    rests: tuple[bool, ...] = (False,)
    counted: int = 0
    columns: Columns | None = None
    place: int = 0
    whitening: Tensor | None = None
    texture: bool = False
    standardised: Standardised = NOTHING

    @classmethod
    def fit(cls, parts: Sequence[Tensor], *, with_lengths: bool, inputs: int | None, texture: bool) -> "Coordinates":
        """parts: the activations (N, F_l) of each layer for training examples, float64 on the CPU; inputs: which of
        them are the network's inputs; texture: before them comes that of the inputs."""
        layers, place = parts[texture:], inputs or 0
        columns = None if inputs is None else Columns.fit(layers[place])
        widths = tuple(h.shape[1] for h in layers)
        own = torch.eye(len(widths), dtype=parts[0].dtype).repeat_interleave(torch.tensor(widths), dim=1)
        found = cls(widths, own, 0 * own[0], counted=len(layers) * with_lengths, columns=columns, place=place)
        unit, _ = found.standard(layers)
        centre = unit.mean(0)
        spread = (own @ (unit - centre).square().mean(0)).sqrt()
        spread = torch.where(spread > LEAST_SCALE, spread, 1.0)  # all alike
        found = replace(found, scale=spread[:, None] * own, centre=centre / (spread @ own), texture=texture)
        half, between = _halves(found.standard(layers)[0])
        directions = _leading(half)
        outside = torch.addmm(between, between @ directions, directions.T, alpha=-1)
        shown = float(outside.square().sum(1).mean()) > LEAST_REST**2 * len(layers)
        whitening = _whitening(half[:, own[place] > 0]) if columns is not None and with_lengths else None
        found = replace(found, directions=(directions,), rests=(shown,), whitening=whitening)
        values = found.measured(parts)[1]
        return replace(found, standardised=Standardised.of(values, found.combinations(values)))

    def combinations(self, values: Tensor) -> list[Combination]:
        """Of what is measured, in the order of the coordinates."""
        unit = torch.eye(values.shape[1], dtype=values.dtype)
        found, rows = list[Combination](), iter(unit)
        if self.rests[0]:
            found.append(Combination(next(rows), 1.0, by_between=True, alike=math.log(LEAST_OUTSIDE)))
        if self.whitening is not None:
            found += [Combination(next(rows), 1.0, above=True, by_between=True), Combination(unit[-1], 1.0, above=True)]
        found += [Combination(next(rows)) for _ in range(self.whitening is not None, self.counted)]
        if self.texture:
            length, change = next(rows), next(rows)
            found += [Combination(length), Combination(change - length)]
        return found

    def of(self, parts: Sequence[Tensor]) -> Tensor:
        """t (B, q + ...), of two variances first the q of both; parts (B, F_l), in the precision of the fields."""
        projected, values = self.measured(parts)
        return torch.cat([*projected, self.standardised(values)], dim=1)

    def measured(self, parts: Sequence[Tensor]) -> tuple[list[Tensor], Tensor]:
        """U^T z, and (B, n) the logarithms of lengths: outside U, whitened, of the layers, and of the texture; last,
        relative, that of standardised columns."""
        z, lengths = self.standard(parts[self.texture :])
        start, projected, found = sum(self.widths[: self.place]), [], list[Tensor]()
        for directions, first, rest in zip(self.directions, self.starts, self.rests, strict=True):
            own = z[:, first : first + len(directions)]
            projected.append(own @ directions)
            if rest:
                found.append(norm(torch.addmm(own, projected[-1], directions.T, alpha=-1)))
        if self.whitening is not None:
            found.append(norm(z[:, start : start + len(self.whitening)] @ self.whitening))
        lengths = lengths[: self.counted]
        relative = [lengths.pop(self.place)] if self.columns is not None and self.place < self.counted else []
        found += [*lengths, *parts[: self.texture]]
        logarithms = torch.cat(found, dim=1).clamp(SMALLEST, LARGEST).log() if found else z[:, :0]
        return projected, torch.cat([logarithms, *relative], dim=1) if relative else logarithms

    def standard(self, layers: Sequence[Tensor]) -> tuple[Tensor, list[Tensor]]:
        """z (B, F), and |h_l| (B, 1) of each layer."""
        layers = list(layers)
        if self.columns is not None:
            layers[self.place] = self.columns(layers[self.place])
        lengths = [norm(h) for h in layers]
        divisors = list(lengths)
        if self.columns is not None:
            divisors[self.place] = ((lengths[self.place].square() + 1) / 2).sqrt()
        scaled = torch.cat(divisors, dim=1).clamp(SMALLEST, LARGEST) @ self.scale
        return torch.cat(layers, dim=1) / scaled - self.centre, lengths

    def beside(self, link: "Coordinates", shared: int) -> "Coordinates":
        """Both, those of a link before these: it reads the last `shared` layers too, and others after them, but no
        lengths and no texture."""
        before = len(self.widths) - shared
        start = sum(self.widths[:before])
        scale = link.scale.new_zeros(before + len(link.widths), start + len(link.centre))
        scale[: len(self.widths), : len(self.centre)] = self.scale
        scale[before:, start:] = link.scale
        own = self.columns is not None
        return replace(
            self,
            widths=self.widths[:before] + link.widths,
            scale=scale,
            centre=torch.cat([self.centre[:start], link.centre]),
            directions=link.directions + self.directions,
            starts=(start, 0),
            rests=link.rests + self.rests,
            columns=self.columns if own else link.columns,
            place=self.place if own else before + link.place,
            standardised=link.standardised.beside(self.standardised),
        )


def _whitening(z: Tensor) -> Tensor:
    """V (F, F); z (N, F) of training examples, of mean zero."""
    values, vectors = torch.linalg.eigh(z.T @ z / len(z))
    values = values.clamp(min=0)
    ridge = RIDGE * float(values.mean())
    whitening: Tensor = vectors / (values + (ridge if ridge > 0 else 1.0)).sqrt()
    return whitening.contiguous()


def _halves(z: Tensor) -> tuple[Tensor, Tensor]:
    """Every other example, and those between."""
    return z[::2], z[1::2] if len(z) > 1 else z


def _leading(z: Tensor) -> Tensor:
    """The leading directions (F, q) of E[z z^T], by a randomised decomposition (Halko et al., 2011).

    Its draws are always the same: two variances of the same layers have the same directions, and a graph has them once.
    """
    count = max(1, min(DIRECTIONS, len(z) * 2 // EXAMPLES_A_DIRECTION, z.shape[1]))
    if z.shape[1] <= DIRECTIONS:
        exact: Tensor = torch.linalg.eigh(z.T @ z).eigenvectors.flip(1)[:, :count].contiguous()
        return exact
    fixed = torch.Generator().manual_seed(0)
    sketch = torch.randn(z.shape[1], count + EXAMPLES_A_DIRECTION, generator=fixed, dtype=z.dtype)
    for _ in range(4):
        sketch = torch.linalg.qr(z.T @ (z @ sketch)).Q
    values = torch.linalg.eigh((z @ sketch).T @ (z @ sketch))
    found: Tensor = (sketch @ values.eigenvectors.flip(1)[:, :count]).contiguous()
    return found
