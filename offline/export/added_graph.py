"""The module that adds the added weights to a graph: their variance becomes part of each output's."""

import torch
from torch import Tensor, nn

from ..features.added_weights import AddedWeights
from .split_graph import traced


class AddedWeightsGraph(nn.Module):
    """x (B, *shape) -> mean and variance (B, K), of both posteriors, c v (B,) and the feature scores (B, 1), float32.

    The forward pass that the activations need is that of `graph`, which gives mean and variance: what both compute is
    merged when the graph is simplified.
    """

    share: Tensor | None

    def __init__(
        self, graph: nn.Module, model: nn.Module, added: AddedWeights, rows: Tensor, share: Tensor | None = None
    ) -> None:
        """share (K,): what part of c v each output has; None: all of it."""
        super().__init__()
        self.register_buffer("share", None if share is None else share.to(rows.device, torch.float32))
        self.inner = graph
        served = added.to(torch.zeros((), dtype=torch.float32, device=rows.device))
        with torch.no_grad():
            self.added = traced(lambda x: served.of(model, x), rows, symbolic=True)

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        mean, variance = self.inner(x)
        added, distance = self.added(x)
        each = added.unsqueeze(1) if self.share is None else added.unsqueeze(1) * self.share
        return mean, variance + each, added, distance.unsqueeze(1)
