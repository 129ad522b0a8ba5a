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
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from ..runtime.arrays import Array, to_numpy
from .activations import INPUTS, TEXTURE, read_activations
from .coordinates import Coordinates
from .gate import OPEN, Gate
from .layers import MOST_INPUTS, FeatureLayers

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
    """v: coordinates; frequencies W / d (T, R), phases b (R,); factor (R, m), columns sqrt(e_i / (e_i + rho)) u_i."""

    coordinates: Coordinates
    frequencies: Tensor
    phases: Tensor
    factor: Tensor

    @classmethod
    def fit(
        cls,
        parts: Sequence[Tensor],
        settings: FeatureSettings,
        *,
        with_lengths: bool,
        inputs: bool = False,
        texture: bool = False,
        generator: torch.Generator,
    ) -> "FeatureVariance":
        """parts: the activations (N, F_l) of each layer for training examples, float64 on the CPU; inputs: the first of
        them are the network's inputs, whose combinations count; texture: before them comes that of the inputs."""
        coordinates = Coordinates.fit(
            parts, with_lengths=with_lengths, inputs=inputs, texture=texture, generator=generator
        )
        t = coordinates.of(parts)
        normal = torch.randn(t.shape[1], settings.features, generator=generator, dtype=t.dtype)
        phases = 2 * math.pi * torch.rand(settings.features, generator=generator, dtype=t.dtype)
        frequencies = normal / (settings.length_scale * _median_distance(t, generator))
        curvature = torch.zeros(settings.features, settings.features, dtype=t.dtype)
        for some in torch.split(t, BLOCK):
            phi = _features(some, frequencies, phases)
            curvature.addmm_(phi.T, phi)
        values, vectors = torch.linalg.eigh(curvature / len(t))
        values, vectors = values.clamp(min=0).flip(0)[: settings.kept], vectors.flip(1)[:, : settings.kept]
        factor = (vectors * (values / (values + settings.precision)).sqrt()).contiguous()
        return cls(coordinates, frequencies, phases, factor)

    def of(self, parts: Sequence[Tensor]) -> Tensor:
        """v (B,); parts (B, F_l), in the precision of the fields."""
        phi = _features(self.coordinates.of(parts), self.frequencies, self.phases)
        return (phi.square().sum(1) - (phi @ self.factor).square().sum(1)).clamp(min=0.0)

    def to(self, like: Tensor) -> "FeatureVariance":
        """In the precision and on the device of a tensor."""
        coordinates = self.coordinates.to(like)
        return FeatureVariance(coordinates, self.frequencies.to(like), self.phases.to(like), self.factor.to(like))


def _features(t: Tensor, frequencies: Tensor, phases: Tensor) -> Tensor:
    """phi (B, R); t (B, T)."""
    return math.sqrt(2 / len(phases)) * torch.cos(t @ frequencies + phases)


def _median_distance(t: Tensor, generator: torch.Generator) -> float:
    """Of two different examples drawn at random; 1 where all are alike."""
    first, second = (torch.randint(len(t), (PAIRS,), generator=generator) for _ in range(2))
    distances = torch.linalg.vector_norm(t[first] - t[second], dim=1)
    some = distances[distances > LEAST_DISTANCE]
    return float(some.median()) if len(some) else 1.0


@dataclass(frozen=True)
class AddedWeights:
    """link: v for the variance of the outputs; score: v for the distance; float64 on the CPU. gate: what makes both
    posteriors' variances that of the outputs, once it is chosen."""

    layers: FeatureLayers
    link: FeatureVariance
    score: FeatureVariance
    gate: Gate = OPEN

    @classmethod
    def fit(cls, layers: FeatureLayers, activations: dict[str, Tensor], seed: int) -> "AddedWeights":
        """activations (N, F_l) by path, of training examples."""

        def fit(paths: Sequence[str], settings: FeatureSettings, *, with_lengths: bool, stream: int) -> FeatureVariance:
            generator = torch.Generator().manual_seed(_stream(seed, stream))
            parts = [activations[path].double() for path in paths]
            inputs = INPUTS in paths and activations[INPUTS].shape[1] <= MOST_INPUTS
            return FeatureVariance.fit(
                parts,
                settings,
                with_lengths=with_lengths,
                inputs=inputs,
                texture=TEXTURE in paths,
                generator=generator,
            )

        link = fit(layers.link, LINK_FEATURES, with_lengths=False, stream=1)
        return cls(layers, link, fit(layers.score, SCORE_FEATURES, with_lengths=True, stream=2))

    def of(self, model: nn.Module, x: Tensor) -> tuple[Tensor, Tensor]:
        """v and the distance, (B,) each; x (B, *input_shape); the model in the precision of the fields."""
        paths = self.layers.paths
        found = dict(zip(paths, read_activations(model, paths, x), strict=True))
        return self.link.of([found[path] for path in self.layers.link]), self.score.of(
            [found[path] for path in self.layers.score]
        )

    def of_all(self, model: nn.Module, inputs: Tensor, rows: int) -> tuple[Array, Array]:
        """The same in float64 from the model's own precision, (n,) each, `rows` examples at once."""
        found, paths = [], self.layers.paths
        with torch.no_grad():
            for part in torch.split(inputs, rows):
                read = [h.double().cpu() for h in read_activations(model, paths, part)]
                at = dict(zip(paths, read, strict=True))
                pair = [at[path] for path in self.layers.link], [at[path] for path in self.layers.score]
                found.append((to_numpy(self.link.of(pair[0])), to_numpy(self.score.of(pair[1]))))
        variance, distance = (np.concatenate(each) for each in zip(*found, strict=True))
        return variance, distance

    def to(self, like: Tensor) -> "AddedWeights":
        """In the precision and on the device of a tensor."""
        return AddedWeights(self.layers, self.link.to(like), self.score.to(like), self.gate)


def _stream(seed: int, number: int) -> int:
    """A stream of its own for each use of the seed."""
    (state,) = np.random.SeedSequence([seed, number]).generate_state(1, np.uint64)
    return int(state >> np.uint64(1))
