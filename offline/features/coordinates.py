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

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor

DIRECTIONS = 32
EXAMPLES_A_DIRECTION = 8
LENGTH_WEIGHT = 0.3  # w, of activations and texture: at 1, turned images are told worse
LEAST_LENGTH = 1e-12  # of activations, keeps their direction finite where all are zero
LEAST_SPREAD = 1e-6  # of a column, relative to its mean: less is rounding
MOST_COLUMN = 1e15  # deviations; their squares have a sum in float32
RIDGE = 0.01  # r, relative to the mean eigenvalue
# Lengths that are alike to this share, as behind a normalisation, tell nothing but rounding.
LEAST_DEVIATION = 0.02
MOST_DEVIATIONS = 50.0  # beyond, everything is equally far, and a cosine has no digits in float32
LEAST_REST = 1e-3  # relative to the root mean square of a z_l: less is rounding
LEAST_SCALE = 1e-4  # s_l, of directions of length 1: less is rounding, behind many layers


@dataclass(frozen=True)
class Standardised:
    """w std(a), std within `MOST_DEVIATIONS`: mean and deviation of a, and w, (n,) each."""

    mean: Tensor
    deviation: Tensor
    weight: Tensor

    @classmethod
    def of(cls, values: Tensor, weight: Sequence[float] = (1.0,)) -> "Standardised":
        """values (N, n) of training examples: logarithms of lengths, or lengths relative to a usual one."""
        deviation = values.std(0, correction=0).clamp(min=LEAST_DEVIATION)
        return cls(values.mean(0), deviation, torch.tensor(weight, dtype=values.dtype))

    def __call__(self, values: Tensor) -> Tensor:
        """(B, n) -> (B, n)."""
        standard = ((values - self.mean) / self.deviation).clamp(-MOST_DEVIATIONS, MOST_DEVIATIONS)
        return self.weight * standard

    def to(self, like: Tensor) -> "Standardised":
        """In the precision and on the device of a tensor."""
        return Standardised(self.mean.to(like), self.deviation.to(like), self.weight.to(like))


@dataclass(frozen=True)
class Columns:
    """(h - E[h]) / sqrt(Var[h]) of each input: mean and deviation (F,); usual, (1,): the root of the mean square of a
    row's length."""

    mean: Tensor
    deviation: Tensor
    usual: Tensor

    @classmethod
    def fit(cls, h: Tensor) -> "Columns":
        """h (N, F) of training examples; what is always alike keeps its unit."""
        mean, deviation = h.mean(0), h.std(0, correction=0)
        shown = deviation > LEAST_SPREAD * mean.abs()
        deviation = torch.where(shown, deviation, torch.ones_like(deviation))
        usual = ((h - mean) / deviation).square().sum(1, keepdim=True).mean(0).sqrt()
        return cls(mean, deviation, torch.where(usual > LEAST_SPREAD, usual, torch.ones_like(usual)))

    def __call__(self, h: Tensor) -> Tensor:
        """(B, F) -> (B, F)."""
        return ((h - self.mean) / self.deviation).clamp(-MOST_COLUMN, MOST_COLUMN)

    def direction(self, rows: Tensor) -> Tensor:
        """Of standardised rows (B, F): h / |h| far from the mean, next to zero at it."""
        relative = rows / self.usual
        return relative / ((relative.square().sum(1, keepdim=True) + 1) / 2).sqrt()

    def length(self, rows: Tensor) -> Tensor:
        """Of standardised rows (B, F), relative to the usual one, (B, 1)."""
        length: Tensor = torch.linalg.vector_norm(rows / self.usual, dim=1, keepdim=True)
        return length

    def to(self, like: Tensor) -> "Columns":
        """In the precision and on the device of a tensor."""
        return Columns(self.mean.to(like), self.deviation.to(like), self.usual.to(like))


@dataclass(frozen=True)
class Combination:
    """max(0, std(log |V^T z|)): how unusual the values z (F,) are together; whitening: V (F, F)."""

    whitening: Tensor
    length: Standardised

    @classmethod
    def fit(cls, z: Tensor) -> "Combination":
        """z (N, F) of training examples, of mean zero."""
        own, between = _halves(z)
        values, vectors = torch.linalg.eigh(own.T @ own / len(own))
        values = values.clamp(min=0)
        ridge = RIDGE * float(values.mean())
        whitening = (vectors / (values + (ridge if ridge > 0 else 1.0)).sqrt()).contiguous()
        return cls(whitening, Standardised.of(_log_lengths([between @ whitening])))

    def __call__(self, z: Tensor) -> Tensor:
        """(B, F) -> (B, 1)."""
        return self.length(_log_lengths([z @ self.whitening])).clamp(min=0)

    def to(self, like: Tensor) -> "Combination":
        """In the precision and on the device of a tensor."""
        return Combination(self.whitening.to(like), self.length.to(like))


@dataclass(frozen=True)
class Coordinates:
    """centre, scale (F,): m and s of each activation's layer; directions U (F, q); rest: of the length outside them,
    None where they span all; lengths: of each layer's activations, None where they do not count; columns and
    combination: of the network's inputs, None where they are no layer, or do not count; texture: of the inputs'."""

    centre: Tensor
    scale: Tensor
    directions: Tensor
    rest: Standardised | None = None
    lengths: Standardised | None = None
    columns: Columns | None = None
    combination: Combination | None = None
    texture: Standardised | None = None

    @classmethod
    def fit(
        cls,
        parts: Sequence[Tensor],
        *,
        with_lengths: bool,
        inputs: bool = False,
        texture: bool = False,
        generator: torch.Generator,
    ) -> "Coordinates":
        """parts: the activations (N, F_l) of each layer for training examples, float64 on the CPU; inputs: the first of
        them are the network's inputs; texture: before them comes that of the inputs."""
        seen = Standardised.of(parts[0], [LENGTH_WEIGHT] * parts[0].shape[1]) if texture else None
        parts = parts[1:] if texture else parts
        columns = Columns.fit(parts[0]) if inputs else None
        parts = _with_columns(parts, columns)
        centres, scales, standard = [], [], []
        for unit in _units(parts, columns):
            centre = unit.mean(0)
            moved = unit - centre
            scale = float(moved.square().sum(1).mean().sqrt())
            scale = scale if scale > LEAST_SCALE else 1.0  # all alike
            centres.append(centre)
            scales.append(torch.full_like(centre, scale))
            standard.append(moved / scale)
        weights = [1.0 if inputs and layer == 0 else LENGTH_WEIGHT for layer in range(len(parts))]
        z = torch.cat(standard, dim=1)
        own, between = _halves(z)
        directions = _leading(own, generator)
        outside = _outside(between, directions)
        shown = float(outside.square().mean()) > LEAST_REST**2 * len(parts)
        return cls(
            torch.cat(centres),
            torch.cat(scales),
            directions,
            Standardised.of(_log(outside)) if shown else None,
            Standardised.of(_lengths(parts, columns), weights) if with_lengths else None,
            columns,
            Combination.fit(standard[0]) if inputs and with_lengths else None,
            seen,
        )

    def of(self, parts: Sequence[Tensor]) -> Tensor:
        """t (B, q + ...); parts (B, F_l), in the precision of the fields."""
        texture, parts = (parts[:1], parts[1:]) if self.texture is not None else ((), parts)
        parts = _with_columns(parts, self.columns)
        z = (torch.cat(_units(parts, self.columns), dim=1) - self.centre) / self.scale
        found = [z @ self.directions]
        if self.rest is not None:
            found.append(self.rest(_log(_outside(z, self.directions))))
        if self.combination is not None:
            found.append(self.combination(z[:, : len(self.combination.whitening)]))
        if self.lengths is not None:
            lengths = self.lengths(_lengths(parts, self.columns))
            if self.columns is not None:
                lengths = torch.cat([lengths[:, :1].clamp(min=0), lengths[:, 1:]], dim=1)
            found.append(lengths)
        if self.texture is not None:
            found += [self.texture(logarithms) for logarithms in texture]
        return torch.cat(found, dim=1)

    def to(self, like: Tensor) -> "Coordinates":
        """In the precision and on the device of a tensor."""
        found = {field.name: getattr(self, field.name) for field in fields(self)}
        return replace(self, **{name: value.to(like) for name, value in found.items() if value is not None})


def _with_columns(parts: Sequence[Tensor], columns: Columns | None) -> Sequence[Tensor]:
    return parts if columns is None else [columns(parts[0]), *parts[1:]]


def _units(parts: Sequence[Tensor], columns: Columns | None) -> list[Tensor]:
    """The direction of each part, the first of which are standardised columns, if there are any."""
    if columns is None:
        return [_unit(h) for h in parts]
    return [columns.direction(parts[0]), *(_unit(h) for h in parts[1:])]


def _lengths(parts: Sequence[Tensor], columns: Columns | None) -> Tensor:
    """log |h_l|, and of standardised columns their relative length, (B, L)."""
    if columns is None:
        return _log_lengths(parts)
    length = columns.length(parts[0])
    return torch.cat([length, _log_lengths(parts[1:])], dim=1) if len(parts) > 1 else length


def _unit(h: Tensor) -> Tensor:
    unit: Tensor = h / torch.linalg.vector_norm(h, dim=1, keepdim=True).clamp(min=LEAST_LENGTH)
    return unit


def _log(lengths: Tensor) -> Tensor:
    return lengths.clamp(min=LEAST_LENGTH).log()


def _log_lengths(parts: Sequence[Tensor]) -> Tensor:
    """log |h_l|, (B, L)."""
    return torch.cat([_log(torch.linalg.vector_norm(h, dim=1, keepdim=True)) for h in parts], dim=1)


def _halves(z: Tensor) -> tuple[Tensor, Tensor]:
    """Every other example, and those between."""
    return z[::2], z[1::2] if len(z) > 1 else z


def _outside(z: Tensor, directions: Tensor) -> Tensor:
    """|z - U U^T z|, (B, 1)."""
    length: Tensor = torch.linalg.vector_norm(z - (z @ directions) @ directions.T, dim=1, keepdim=True)
    return length


def _leading(z: Tensor, generator: torch.Generator) -> Tensor:
    """The leading directions (F, q) of E[z z^T], by a randomised decomposition (Halko et al., 2011)."""
    count = max(1, min(DIRECTIONS, len(z) * 2 // EXAMPLES_A_DIRECTION, z.shape[1]))
    if z.shape[1] <= DIRECTIONS:
        exact: Tensor = torch.linalg.eigh(z.T @ z).eigenvectors.flip(1)[:, :count].contiguous()
        return exact
    sketch = torch.randn(z.shape[1], count + EXAMPLES_A_DIRECTION, generator=generator, dtype=z.dtype)
    for _ in range(4):
        sketch = torch.linalg.qr(z.T @ (z @ sketch)).Q
    values = torch.linalg.eigh((z @ sketch).T @ (z @ sketch))
    found: Tensor = (sketch @ values.eigenvectors.flip(1)[:, :count]).contiguous()
    return found
