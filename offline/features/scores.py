"""Feature scores of a network: fitted in one pass over the training data, computed from one forward pass."""

from collections.abc import Collection
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from offline.data.loaders import in_chunks
from offline.features.class_gaussian import ClassGaussian, ClassSums, unit
from offline.features.layers import FeatureLayers, feature_layers
from offline.job import Job
from offline.runtime.arrays import Array, to_numpy
from offline.runtime.peak_memory import FLOAT64
from service.maths.scores import FeatureScoreName


@dataclass(frozen=True)
class FeatureScores:
    """Where the features of each score are read, and its distance, in float64 on the CPU."""

    layers: FeatureLayers
    gaussians: dict[FeatureScoreName, ClassGaussian]

    @property
    def names(self) -> tuple[FeatureScoreName, ...]:
        """Of the scores, in the order of the columns."""
        return tuple(self.gaussians)

    def only(self, names: Collection[str]) -> "FeatureScores":
        """Some of the scores."""
        paths = {name: found for name, found in self.layers.paths.items() if name in names}
        gaussians = {name: found for name, found in self.gaussians.items() if name in names}
        return FeatureScores(FeatureLayers(paths), gaussians)

    def to(self, like: Tensor) -> "FeatureScores":
        """In the precision and on the device of a tensor."""
        return FeatureScores(self.layers, {name: found.to(like) for name, found in self.gaussians.items()})

    def of(self, model: nn.Module, x: Tensor) -> Tensor:
        """(B, M) in the model's precision; x (B, *input_shape)."""
        columns = []
        for name, parts in self.layers.read(model, x).items():
            u = unit(parts)
            columns.append(self.gaussians[name].to(u).distance(u))
        return torch.stack(columns, dim=1)

    def of_all(self, model: nn.Module, inputs: Tensor, rows: int) -> dict[str, Array]:
        """(n,) float32 each, by name, as they are served; inputs (n, *input_shape), `rows` examples at once."""
        with torch.no_grad():
            found = torch.cat([self.of(model, part) for part in torch.split(inputs, rows)])
        return dict(zip(self.names, to_numpy(found.float().T), strict=True))


def layers_of(job: Job) -> FeatureLayers:
    """Where the job's network has features; `ValueError` for a network that has none."""
    return feature_layers(job.network, job.head, job.example)


def feature_bytes(job: Job) -> int:
    """What the fit of the feature scores takes in memory at most, beside the activations of a forward pass: the sums,
    and the eigenvectors of the largest with LAPACK's work space."""
    widths = _widths(job, layers_of(job)).values()
    return FLOAT64 * (sum(width * (width + job.likelihood.outputs) for width in widths) + 4 * max(widths) ** 2)


def _widths(job: Job, layers: FeatureLayers) -> dict[FeatureScoreName, int]:
    """F of each score."""
    with torch.no_grad():
        features = layers.read(job.network, job.example)
    return {name: sum(part.shape[1] for part in parts) for name, parts in features.items()}


def fit_feature_scores(job: Job, rows: int) -> FeatureScores:
    """One pass over the training data, at most `rows` examples at once; every process calls it.

    Raises as `layers_of`.
    """
    layers, classes = layers_of(job), job.likelihood.outputs
    sums = {name: ClassSums(width, classes, job.device) for name, width in _widths(job, layers).items()}
    torch.manual_seed(job.config.seed)  # as in the pass for the curvature
    for batch, targets in job.distributed.shard_batches(job.pass_over_training("Features")):
        for inputs, some in in_chunks(batch, job.likelihood.check_targets(targets, len(batch)), rows):
            with torch.no_grad():
                features = layers.read(job.network, inputs)
            for name, parts in features.items():
                sums[name].add(unit(parts), some)
    for tensor in (tensor for own in sums.values() for tensor in own.tensors):
        job.distributed.all_reduce(tensor)
    return FeatureScores(layers, {name: own.gaussian() for name, own in sums.items()})
