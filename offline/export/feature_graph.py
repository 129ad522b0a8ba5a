"""The module that adds feature scores to a graph: inputs (B, *input_shape) -> what the graph gives, and (B, M)."""

import torch
from torch import Tensor, nn

from offline.export.split_graph import traced
from offline.features.scores import FeatureScores


class FeatureScoresGraph(nn.Module):
    """x (B, *shape) -> the results of `graph`, and the feature scores (B, M) float32.

    The forward pass that they need is that of the graph: what both compute is merged when the graph is simplified.
    """

    def __init__(self, graph: nn.Module, model: nn.Module, scores: FeatureScores, rows: Tensor) -> None:
        super().__init__()
        self.inner = graph
        served = scores.to(torch.zeros((), dtype=torch.float32, device=rows.device))
        with torch.no_grad():
            self.scores = traced(lambda x: served.of(model, x), rows, symbolic=True)

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        mean, result = self.inner(x)
        return mean, result, self.scores(x)
