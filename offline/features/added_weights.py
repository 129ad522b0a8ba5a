"""Weights that the network did not have: a second, small head beside it, whose trained value is zero.

The head's inputs are random Fourier features (Rahimi and Recht, NeurIPS 2007) of where an example lies,

    phi(t) = sqrt(2 / R) cos(W t / (s d) + b),   W normal, b uniform in [0, 2 pi),

d the median distance of two examples, s = 1, t the coordinates of an example (`demur.offline.features.coordinates`).
So the mean of the predictive, and the label, are the network's. A Gaussian prior of variance c over the added weights
beta, and the training data's curvature, give the posterior, whose variance of an output is c v(x) before the gate
(`demur.offline.features.gate`),

    v(x) = rho phi^T (C + rho I)^-1 phi,   C = E[phi phi^T]:

small where training examples lie, and 1 far from all of them, however long the activations are. It is the posterior of
Daxberger et al. (ICML 2021) over weights that were added, as in SNGP (Liu et al., NeurIPS 2020), with identity in the
place of the outputs' Hessian. The m leading eigenpairs of C are kept, and the prior for the rest, so

    v = |phi|^2 - sum_i e_i / (e_i + rho) (u_i^T phi)^2,

never smaller than with all of them.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from demur.service.maths.scores import FeatureScoreName

from ..data.changes import stream
from ..runtime.arrays import Array, to_numpy
from .activations import INPUTS, TEXTURE, read_activations
from .coordinates import Coordinates, converted, side_by_side
from .gate import OPEN, Gate
from .input_noise import InputNoise
from .layers import MOST_INPUTS, FeatureLayers
from .mistakes import Mistakes
from .told_noise import ToldNoise

PAIRS = 10_000  # of examples, for the median distance
LEAST_DISTANCE = 1e-3  # of two that are not alike, where coordinates are deviations: less is rounding
BLOCK = 1024


@dataclass(frozen=True)
class FeatureSettings:
    """R features, of whose curvature `kept` eigenpairs are kept; the prior precision rho; s, the length scale in median
    distances."""

    features: int
    kept: int
    precision: float = 5e-5
    length_scale: float = 1.0


LINK_FEATURES, SCORE_FEATURES = FeatureSettings(512, 128), FeatureSettings(256, 64)


@dataclass(frozen=True)
class FeatureVariance:
    """v, of n posteriors: coordinates; frequencies W / d (T, R), phases b (R,); factors (R', m) of each, columns
    sqrt(e_i / (e_i + rho)) u_i; weights (R + m, n): of the squares of the cosines and of their products with these."""

    coordinates: Coordinates
    frequencies: Tensor
    phases: Tensor
    factors: tuple[Tensor, ...]
    weights: Tensor

    @classmethod
    def fit(
        cls,
        parts: Sequence[Tensor],
        settings: FeatureSettings,
        *,
        with_lengths: bool,
        inputs: int | None = None,
        texture: bool = False,
        generator: torch.Generator,
    ) -> "FeatureVariance":
        """Of one posterior. parts: the activations (N, F_l) of each layer for training examples, float64 on the CPU;
        inputs: which of them are the network's inputs, whose combinations count; texture: before them comes that of
        the inputs."""
        coordinates = Coordinates.fit(parts, with_lengths=with_lengths, inputs=inputs, texture=texture)
        t = coordinates.of(parts)
        normal = torch.randn(t.shape[1], settings.features, generator=generator, dtype=t.dtype)
        phases = 2 * math.pi * torch.rand(settings.features, generator=generator, dtype=t.dtype)
        frequencies = normal / (settings.length_scale * _median_distance(t, generator))
        scale = 2 / settings.features  # |phi|^2 = scale |cos|^2
        curvature = torch.zeros(settings.features, settings.features, dtype=t.dtype)
        for some in torch.split(t, BLOCK):
            cosines = torch.cos(some @ frequencies + phases)
            curvature.addmm_(cosines.T, cosines, alpha=scale)
        values, vectors = torch.linalg.eigh(curvature / len(t))
        values, vectors = values.clamp(min=0).flip(0)[: settings.kept], vectors.flip(1)[:, : settings.kept]
        factor = (vectors * (values / (values + settings.precision)).sqrt()).contiguous()
        weights = torch.tensor([scale] * len(factor) + [-scale] * factor.shape[1], dtype=t.dtype)
        return cls(coordinates, frequencies, phases, (factor,), weights.unsqueeze(1))

    def cosines(self, t: Tensor) -> Tensor:
        """sqrt(R / 2) phi (B, R), of all posteriors side by side; t (B, T), in the precision of the fields."""
        return torch.cos(torch.addmm(self.phases, t, self.frequencies))

    def of(self, parts: Sequence[Tensor]) -> Tensor:
        """v (B, n); parts (B, F_l)."""
        return self.at(self.coordinates.of(parts))[0]

    def at(self, t: Tensor) -> tuple[Tensor, Tensor]:
        """v (B, n), and of the last posterior phi in the eigenvectors that are kept, psi = factor^T phi (B, m)."""
        cosines = self.cosines(t)
        each = torch.split(cosines, [len(factor) for factor in self.factors], dim=1)
        products = [own @ factor for own, factor in zip(each, self.factors, strict=True)]
        variance = (torch.cat([cosines, *products], dim=1).square() @ self.weights).clamp(min=0.0)
        return variance, math.sqrt(2 / len(self.factors[-1])) * products[-1]

    def beside(self, link: "FeatureVariance", shared: int) -> "FeatureVariance":
        """Both, a link's before this one's; shared: as for the coordinates."""
        first, second = (sum(u.shape[1] for u in each.coordinates.directions) for each in (link, self))
        return FeatureVariance(
            self.coordinates.beside(link.coordinates, shared),
            side_by_side(link.frequencies, self.frequencies, first, second),
            torch.cat([link.phases, self.phases]),
            link.factors + self.factors,
            side_by_side(link.weights, self.weights, len(link.phases), len(self.phases)),
        )


def _median_distance(t: Tensor, generator: torch.Generator) -> float:
    """Of two different examples drawn at random; 1 where all are alike."""
    first, second = (torch.randint(len(t), (PAIRS,), generator=generator) for _ in range(2))
    distances = torch.linalg.vector_norm(t[first] - t[second], dim=1)
    some = distances[distances > LEAST_DISTANCE]
    return float(some.median()) if len(some) else 1.0


@dataclass(frozen=True)
class AddedWeights:
    """variances: v for the variance of the outputs, the link, and v for the distance, the score; float64 on the CPU.
    gate: what makes both posteriors' variances that of the outputs, once it is chosen. noise: of a regression, where it
    depends on the input; told: what it is then of, where the network gives its own. mistakes: what can be told."""

    layers: FeatureLayers
    variances: FeatureVariance
    gate: Gate = OPEN
    noise: InputNoise | None = None
    told: ToldNoise | None = None
    mistakes: Mistakes | None = None

    @property
    def feature_scores(self) -> tuple[FeatureScoreName, ...]:
        """The names of what `of` gives beside v."""
        return ("distance", *(self.mistakes.names if self.mistakes is not None else ()))

    @classmethod
    def fit(cls, layers: FeatureLayers, activations: dict[str, Tensor], seed: int) -> "AddedWeights":
        """activations (N, F_l) by path, of training examples."""

        def fit(own: Sequence[str], settings: FeatureSettings, *, with_lengths: bool, number: int) -> FeatureVariance:
            paths, texture = [path for path in layers.paths if path in own], TEXTURE in own
            inputs = INPUTS in paths and activations[INPUTS].shape[1] <= MOST_INPUTS
            return FeatureVariance.fit(
                [activations[path].double() for path in paths],
                settings,
                with_lengths=with_lengths,
                inputs=paths.index(INPUTS) - texture if inputs else None,
                texture=texture,
                generator=stream(seed, number),
            )

        link = fit(layers.link, LINK_FEATURES, with_lengths=False, number=1)
        score = fit(layers.score, SCORE_FEATURES, with_lengths=True, number=2)
        return cls(layers, score.beside(link, len({*layers.link} & {*layers.score})))

    def of(self, model: nn.Module, x: Tensor) -> tuple[Tensor, Tensor]:
        """v and the feature scores, (B, 1 + M), and what the noise is a function of: psi of the distance (B, m), or
        what the network tells (B, K); x (B, *input_shape); the model in the precision of the fields."""
        return self._of(model, read_activations(model, self.layers.paths, x), x)

    def _of(self, model: nn.Module, read: Sequence[Tensor], x: Tensor) -> tuple[Tensor, Tensor]:
        t = self.variances.coordinates.of(read)
        variance, psi = self.variances.at(t)
        scores = variance if self.mistakes is None else torch.cat([variance, self.mistakes(t)], dim=1)
        return scores, psi if self.told is None else self.told(model, x).to(scores)

    def of_all(self, model: nn.Module, inputs: Tensor, rows: int) -> tuple[Array, Array, Array]:
        """As `of`, v (n,) and the feature scores (n, M), in float64 from the model's own precision, `rows` examples at
        once."""
        found = [self._of(model, read, part) for read, part in self._read(model, inputs, rows)]
        scores, psi = (to_numpy(torch.cat(each)) for each in zip(*found, strict=True))
        return scores[:, 0], scores[:, 1:], psi

    def coordinates_of(self, model: nn.Module, inputs: Tensor, rows: int) -> Tensor:
        """t (n, T), as `of_all`."""
        return torch.cat([self.variances.coordinates.of(read) for read, _ in self._read(model, inputs, rows)])

    def _read(self, model: nn.Module, inputs: Tensor, rows: int) -> Iterator[tuple[list[Tensor], Tensor]]:
        for part in torch.split(inputs, rows):
            with torch.no_grad():
                yield [h.double().cpu() for h in read_activations(model, self.layers.paths, part)], part

    def gated(self) -> "AddedWeights":
        """With c v / med(v) in the place of v, as the gate takes it."""
        scale = torch.tensor([self.gate.added, 1.0], dtype=self.variances.weights.dtype)
        return replace(self, variances=replace(self.variances, weights=self.variances.weights * scale))

    def to(self, like: Tensor) -> "AddedWeights":
        """In the precision and on the device of a tensor."""
        parts = {name: converted(getattr(self, name), like) for name in ("variances", "noise", "mistakes")}
        return replace(self, **parts)
