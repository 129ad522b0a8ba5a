"""Feature scores of a network: fitted in one pass over the training data, computed from one forward pass."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn

from offline.config import FitConfig
from offline.data.loaders import in_chunks
from offline.features.class_gaussian import ClassSums, unit
from offline.features.layers import FeatureLayers, feature_layers
from offline.features.neighbours import BANK_SIZE, Bank
from offline.features.residual import Residual
from offline.job import Job
from offline.runtime.arrays import Array, to_numpy
from offline.runtime.peak_memory import FLOAT64
from service.maths.scores import FEATURE_SCORES, FeatureScoreName

GAUSSIAN: tuple[FeatureScoreName, ...] = ("mahalanobis", "middle_mahalanobis")
NEIGHBOURS: FeatureScoreName = "nearest_neighbours"
RESIDUAL: FeatureScoreName = "residual"


class Distance(Protocol):
    """How far features are from those of the training data."""

    def distance(self, u: Tensor) -> Tensor:
        """(B,); u (B, F), of length 1."""
        ...

    def to(self, like: Tensor) -> "Distance":
        """In the precision and on the device of a tensor."""
        ...


@dataclass(frozen=True)
class FeatureScores:
    """Where the features of each score are read, and its distance, in float64 on the CPU."""

    layers: FeatureLayers
    distances: Mapping[FeatureScoreName, Distance]

    @property
    def names(self) -> tuple[FeatureScoreName, ...]:
        """Of the scores, in the order of the columns."""
        return tuple(self.distances)

    def only(self, names: Collection[str]) -> "FeatureScores":
        """Some of the scores."""
        paths = {name: found for name, found in self.layers.paths.items() if name in names}
        distances = {name: found for name, found in self.distances.items() if name in names}
        return FeatureScores(FeatureLayers(paths), distances)

    def to(self, like: Tensor) -> "FeatureScores":
        """In the precision and on the device of a tensor."""
        return FeatureScores(self.layers, {name: found.to(like) for name, found in self.distances.items()})

    def of(self, model: nn.Module, x: Tensor) -> Tensor:
        """(B, M) in the model's precision; x (B, *input_shape)."""
        columns = []
        for name, parts in self.layers.read(model, x).items():
            u = unit(parts)
            columns.append(self.distances[name].to(u).distance(u))
        return torch.stack(columns, dim=1)

    def of_all(self, model: nn.Module, inputs: Tensor, rows: int) -> dict[str, Array]:
        """(n,) float32 each, by name, as they are served; inputs (n, *input_shape), `rows` examples at once."""
        with torch.no_grad():
            found = torch.cat([self.of(model, part) for part in torch.split(inputs, rows)])
        return dict(zip(self.names, to_numpy(found.float().T), strict=True))


def layers_of(job: Job) -> FeatureLayers:
    """Where the job's network has features; `ValueError` for a network that has none."""
    return feature_layers(job.network, job.head, job.example)


def check_layers(job: Job) -> None:
    """`ValueError` where the network lacks the features of the score that is asked for."""
    known, name = layers_of(job).paths, job.config.score
    if name in FEATURE_SCORES and name not in known:
        raise ValueError(
            f"score: found {name!r} for a network without a layer between its inputs and its head whose features it "
            f"could read, expected one of {', '.join(known)}, or another score"
        )


def candidates(config: FitConfig) -> tuple[str, ...]:
    """The feature scores that `score` may be, or be made of: the one that is named, or those that are compared.

    The nearest neighbours and the residual tell foreign data hardly otherwise than the Mahalanobis distance of the same
    features: with them in it a fused score is no better, and dearer.
    """
    return (config.score,) if config.score in FEATURE_SCORES else GAUSSIAN


def feature_bytes(job: Job) -> int:
    """What the fit of the feature scores takes in memory at most, beside the activations of a forward pass: the sums,
    and the eigenvectors of the largest with LAPACK's work space."""
    widths, classes = _widths(job, layers_of(job)), job.likelihood.outputs
    sums = sum(width * (width + classes) for name, width in widths.items() if name in GAUSSIAN)
    bank = max(BANK_SIZE, classes) * widths[NEIGHBOURS] * job.distributed.world_size
    return FLOAT64 * (sums + bank + 4 * max(widths.values()) ** 2)


def _widths(job: Job, layers: FeatureLayers) -> dict[FeatureScoreName, int]:
    """F of each score."""
    with torch.no_grad():
        features = layers.read(job.network, job.example)
    return {name: sum(part.shape[1] for part in parts) for name, parts in features.items()}


class FeatureFit:
    """What the training data say of the features of each score. Of several processes that share the batches, this is
    `rank` of `parts`, and they add up `tensors`."""

    def __init__(
        self,
        layers: FeatureLayers,
        widths: Mapping[FeatureScoreName, int],
        classes: int,
        device: torch.device,
        rank: int = 0,
        parts: int = 1,
    ) -> None:
        self._layers = layers
        self._sums = {name: ClassSums(width, classes, device) for name, width in widths.items() if name in GAUSSIAN}
        self._bank = Bank(widths[NEIGHBOURS], classes, device, rank, parts)

    def add(self, features: Mapping[FeatureScoreName, list[Tensor]], targets: Tensor) -> None:
        """One batch: the features (B, F_j) of each score's layers, class numbers (B,)."""
        for name, sums in self._sums.items():
            sums.add(unit(features[name]), targets)
        self._bank.add(unit(features[NEIGHBOURS]), targets)

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """What processes that share the batches add up."""
        return (*(tensor for sums in self._sums.values() for tensor in sums.tensors), *self._bank.tensors)

    def scores(self) -> FeatureScores:
        """The fitted scores."""
        found: dict[FeatureScoreName, Distance] = {name: sums.gaussian() for name, sums in self._sums.items()}
        found |= {NEIGHBOURS: self._bank.neighbours(), RESIDUAL: Residual.of(self._sums["mahalanobis"].products)}
        return FeatureScores(self._layers, {name: found[name] for name in self._layers.paths})


def fit_feature_scores(job: Job, rows: int) -> FeatureScores:
    """One pass over the training data, at most `rows` examples at once; every process calls it.

    Raises as `layers_of`.
    """
    layers, shared = layers_of(job), job.distributed
    widths, classes = _widths(job, layers), job.likelihood.outputs
    fit = FeatureFit(layers, widths, classes, job.device, shared.rank, shared.world_size)
    torch.manual_seed(job.config.seed)  # as in the pass for the curvature
    for batch, targets in shared.shard_batches(job.pass_over_training("Features")):
        for inputs, some in in_chunks(batch, job.likelihood.check_targets(targets, len(batch)), rows):
            with torch.no_grad():
                fit.add(layers.read(job.network, inputs), some)
    for tensor in fit.tensors:
        shared.all_reduce(tensor)
    return fit.scores()
