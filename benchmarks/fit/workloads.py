"""A network, its chosen weights and its data, as plain values that travel to the measuring processes as JSON."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.fit.networks.zoo import NetworkSpec, Size, network_spec
from demur.offline.network.weights import WeightLayout

POOL = 32  # examples held in memory: batches are taken from these


@dataclass(frozen=True)
class Workload:
    """S = `weights` chosen at random, in the parameters that start with one of `within` (anywhere where empty)."""

    network: str
    weights: int
    within: tuple[str, ...] = ()
    size: Size = "full"

    @classmethod
    def of(cls, values: dict[str, Any]) -> "Workload":
        """The inverse of `as_json`."""
        return cls(**{**values, "within": tuple(values["within"])})

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @property
    def name(self) -> str:
        where = "+".join(self.within) or "anywhere"
        return f"{self.network}, S={self.weights:,} {where}"

    @property
    def spec(self) -> NetworkSpec:
        return network_spec(self.network, self.size)

    def model(self) -> nn.Module:
        return self.spec.model()

    def data(self) -> tuple[Tensor, Tensor]:
        return self.spec.data(POOL)

    def indices(self, layout: WeightLayout) -> Tensor:
        """The chosen positions (S,), ascending."""
        candidates = positions(layout, self.within)
        chosen = np.random.default_rng(0).choice(len(candidates), self.weights, replace=False)
        return candidates[torch.as_tensor(np.sort(chosen))]


def positions(layout: WeightLayout, within: Sequence[str]) -> Tensor:
    """Positions of every weight whose parameter's name starts with one of `within`; all of them where it is empty."""
    spans = [
        torch.arange(p.offset, p.offset + p.size)
        for p in layout.parameters
        if not within or p.name.startswith(tuple(within))
    ]
    return torch.cat(spans)
