"""Where an example lies, seen from the activations of some layers: a few coordinates without scale or unit.

For layer l with activations h, and means, scales and directions from training examples,

    z_l = (h / |h| - m_l) / s_l,  m_l = E[h / |h|],  s_l^2 = E|h / |h| - m_l|^2,
    t = (U^T z,  std(log |z - U U^T z|),  w std(log |h_1|), ..., w std(log |h_L|)),

z all layers side by side, U (F, q) their leading directions, std(a) = (a - E[a]) / sqrt(Var[a]) and w = 0.3. The
direction of activations tells what the network sees, and how much of it lies outside what training examples span. Their
length is what an input that is ten times too large changes; it is among the coordinates of the distance alone.

U is fitted on every other example, and what it leaves out is standardised on those between: where there are fewer
examples than activations, U would leave out too little of its own examples, and every new one would be far away.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor

DIRECTIONS = 32
EXAMPLES_A_DIRECTION = 8
LENGTH_WEIGHT = 0.3  # w, of the activations alone: at 1, turned images are told worse
LEAST_LENGTH = 1e-12  # of activations, keeps their direction finite where all are zero
# Lengths that are alike to this share, as behind a normalisation, tell nothing but rounding.
LEAST_DEVIATION = 0.02
MOST_DEVIATIONS = 50.0  # beyond, everything is equally far, and a cosine has no digits in float32
LEAST_REST = 1e-3  # relative to the root mean square of z: less is rounding


@dataclass(frozen=True)
class Standardised:
    """std(log a) of positive a, within `MOST_DEVIATIONS`: mean and deviation (n,) of log a."""

    mean: Tensor
    deviation: Tensor

    @classmethod
    def of(cls, logarithms: Tensor) -> "Standardised":
        """logarithms (N, n) of training examples."""
        deviation = logarithms.std(0, correction=0).clamp(min=LEAST_DEVIATION)
        return cls(logarithms.mean(0), deviation)

    def __call__(self, logarithms: Tensor) -> Tensor:
        """(B, n) -> (B, n)."""
        return ((logarithms - self.mean) / self.deviation).clamp(-MOST_DEVIATIONS, MOST_DEVIATIONS)

    def to(self, like: Tensor) -> "Standardised":
        """In the precision and on the device of a tensor."""
        return Standardised(self.mean.to(like), self.deviation.to(like))


@dataclass(frozen=True)
class Coordinates:
    """centre, scale (F,): m and s of each activation's layer; directions U (F, q); rest: of the length outside them,
    None where they span all; lengths: of each layer's activations, None where they do not count."""

    centre: Tensor
    scale: Tensor
    directions: Tensor
    rest: Standardised | None = None
    lengths: Standardised | None = None

    @classmethod
    def fit(cls, parts: Sequence[Tensor], *, with_lengths: bool, generator: torch.Generator) -> "Coordinates":
        """parts: the activations (N, F_l) of each layer for training examples, float64 on the CPU."""
        centres, scales, standard = [], [], []
        for h in parts:
            unit = _unit(h)
            centre = unit.mean(0)
            moved = unit - centre
            scale = float(moved.square().sum(1).mean().sqrt())
            scale = scale if scale > LEAST_LENGTH else 1.0  # all alike
            centres.append(centre)
            scales.append(torch.full_like(centre, scale))
            standard.append(moved / scale)
        z = torch.cat(standard, dim=1)
        directions = _leading(z[::2], generator)
        between = z[1::2] if len(z) > 1 else z
        outside = _outside(between, directions)
        shown = float(outside.square().mean()) > LEAST_REST**2 * float(z.square().sum(1).mean())
        return cls(
            torch.cat(centres),
            torch.cat(scales),
            directions,
            Standardised.of(_log(outside)) if shown else None,
            Standardised.of(_log_lengths(parts)) if with_lengths else None,
        )

    def of(self, parts: Sequence[Tensor]) -> Tensor:
        """t (B, q + ...); parts (B, F_l), in the precision of the fields."""
        z = (torch.cat([_unit(h) for h in parts], dim=1) - self.centre) / self.scale
        columns = [z @ self.directions]
        if self.rest is not None:
            columns.append(self.rest(_log(_outside(z, self.directions))))
        if self.lengths is not None:
            columns.append(LENGTH_WEIGHT * self.lengths(_log_lengths(parts)))
        return torch.cat(columns, dim=1)

    def to(self, like: Tensor) -> "Coordinates":
        """In the precision and on the device of a tensor."""
        found = {field.name: getattr(self, field.name) for field in fields(self)}
        return replace(self, **{name: value.to(like) for name, value in found.items() if value is not None})


def _unit(h: Tensor) -> Tensor:
    unit: Tensor = h / torch.linalg.vector_norm(h, dim=1, keepdim=True).clamp(min=LEAST_LENGTH)
    return unit


def _log(lengths: Tensor) -> Tensor:
    return lengths.clamp(min=LEAST_LENGTH).log()


def _log_lengths(parts: Sequence[Tensor]) -> Tensor:
    """log |h_l|, (B, L)."""
    return torch.cat([_log(torch.linalg.vector_norm(h, dim=1, keepdim=True)) for h in parts], dim=1)


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
