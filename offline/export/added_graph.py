"""The module that adds the added weights to a graph: their variance becomes part of each output's."""

import torch
from torch import Tensor, nn

from ..features.added_weights import AddedWeights
from ..network.outputs import check_output
from .split_graph import traced


class AddedWeightsGraph(nn.Module):
    """x (B, *shape) -> mean and variance (B, K), of both posteriors behind the gate, its part of added weights (B,),
    the feature scores (B, M), and, where the noise depends on the input, its scale (B, K), float32.

    The forward pass that the activations need is that of `graph`, which gives mean and variance: what both compute is
    merged when the graph is simplified.
    """

    share: Tensor | None

    def __init__(
        self, graph: nn.Module, model: nn.Module, added: AddedWeights, rows: Tensor, share: Tensor | None = None
    ) -> None:
        """share (K,): r_k^2, as for the gate."""
        super().__init__()
        self.register_buffer("share", None if share is None else share.to(rows.device, torch.float32))
        self.inner, self.gate = graph, added.gate
        served = added.gated().to(torch.zeros((), dtype=torch.float32, device=rows.device))
        self.noise = served.noise
        with torch.no_grad():
            self.added = traced(lambda x: served.of(model, x), rows, symbolic=True)

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        mean, subnetwork = self.inner(x)
        scores, psi = self.added(x)
        other, features = scores.split([1, scores.shape[1] - 1], dim=1)
        variance, part, _, passed = self.gate(subnetwork, other, self.share)
        noise = () if self.noise is None else (self.noise(psi, mean, passed),)
        return mean, variance, part.squeeze(1), features, *noise


class WithoutSubnetwork(nn.Module):
    """x (B, *shape) -> mean (B, K) and no variance (1, K), where the gate leaves the chosen weights out."""

    def __init__(self, model: nn.Module, rows: Tensor) -> None:
        super().__init__()
        with torch.no_grad():
            self.plain = traced(lambda x: check_output(model(x), x.shape[0]), rows, symbolic=True)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        mean = self.plain(x)
        return mean, mean.new_zeros(1, mean.shape[1])
