"""Which networks look values up. That such a one is tried on the CPU is tested where there is a device, in
`tests/offline/test_cuda.py`."""

import pytest
import torch
from torch import Tensor, nn

from demur.offline.network.invented import for_invented, looks_up


class Indexed(nn.Module):
    """A table of its own, read by brackets."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(9, 3))

    def forward(self, x: Tensor) -> Tensor:
        return self.table[x.long()[:, 0]]


class Selected(Indexed):
    def forward(self, x: Tensor) -> Tensor:
        return self.table.index_select(0, x.long()[:, 0])


TOKENS = torch.zeros(2, 4, dtype=torch.int64)
NETWORKS = {
    "embedding": (nn.Embedding(9, 3), TOKENS, True),
    "bag": (nn.EmbeddingBag(9, 3), TOKENS, True),
    "brackets": (Indexed(), torch.zeros(2, 4), True),
    "index_select": (Selected(), torch.zeros(2, 4), True),
    "linear": (nn.Linear(4, 3), torch.zeros(2, 4), False),
    "convolution": (nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Flatten()), torch.zeros(2, 1, 4, 4), False),
    "attention": (nn.TransformerEncoderLayer(4, 2, batch_first=True), torch.zeros(2, 3, 4), False),
}


@pytest.mark.parametrize(("network", "inputs", "looked_up"), NETWORKS.values(), ids=NETWORKS)
def test_networks_that_look_values_up(network: nn.Module, inputs: Tensor, looked_up: bool) -> None:
    assert looks_up(network.eval(), inputs) == looked_up


def test_on_the_cpu_it_is_the_network_itself() -> None:
    network = nn.Embedding(9, 3)
    assert for_invented(network, TOKENS) is network
