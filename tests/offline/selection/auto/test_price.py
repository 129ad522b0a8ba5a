"""The count of what a prediction costs: closed forms where they hold for this network, backward passes elsewhere."""

import pytest
import torch
from torch import Tensor, nn

from offline.jacobian.output_rule import ALL_OUTPUTS
from offline.selection.auto.price import PriceModel
from tests.support.selections import make_job


class ReadsItsHead(nn.Module):
    """The head's first row is added to the hidden layer, too."""

    def __init__(self, reads: bool) -> None:
        super().__init__()
        self.body, self.inner, self.fc, self.reads = nn.Linear(4, 64), nn.Linear(64, 64), nn.Linear(64, 3), reads

    def forward(self, x: Tensor) -> Tensor:
        h = self.body(x).tanh()
        if self.reads:
            h = h + self.fc.weight[0]
        features: Tensor = self.fc(self.inner(h).tanh())
        return features


@pytest.mark.parametrize("reads", [False, True])
def test_weights_of_a_head_that_is_read_elsewhere_need_backward_passes(reads: bool) -> None:
    torch.manual_seed(0)
    batches = [(torch.randn(6, 4), torch.randint(0, 3, (6,)))]
    job = make_job(ReadsItsHead(reads), batches, 5, outputs=3)
    prices = PriceModel.of(job, job.example[:1])
    head = torch.tensor([p.offset for p in job.layout.parameters if p.name == "fc.weight"])
    found = prices.touched(head)
    assert (found.one_by_one, found.outside) == (["fc.weight"] if reads else [], int(reads))
    assert (prices.predict(head, ALL_OUTPUTS) > 1.04) == reads
