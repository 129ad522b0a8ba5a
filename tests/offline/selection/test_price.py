"""The count of what a prediction costs: closed forms where they hold for this network, backward passes elsewhere."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from demur.offline.data.changes import kind_of
from demur.offline.features.layers import choose_layers
from demur.offline.selection.price import (
    ADDED_OPERATORS,
    CALL_WORK,
    GATHERED_WORK,
    HEAD_OPERATORS,
    LEAST_WORK,
    OPERATOR_WORK,
    READ_WORK,
    PriceModel,
)
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
    in_closed_form = PriceModel.of(make_job(ReadsItsHead(False), batches, 5, outputs=3), job.example[:1])
    dearer = prices.predict(head) > in_closed_form.predict(head) + 0.01
    assert dearer == reads


def convolutions() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 64, 5))


def test_what_memory_and_operators_cost_is_counted() -> None:
    """Measured in onnxruntime, the gathered inputs of a convolution's entries cost more than all multiply-adds."""
    torch.manual_seed(0)
    batches = [(torch.randn(6, 3, 8, 8), torch.randint(0, 5, (6,)))]
    job = make_job(convolutions(), batches, 5, outputs=5)
    prices = PriceModel.of(job, job.example[:1])
    convolution, head = torch.arange(100), torch.arange(300, 400)
    found = prices.touched(convolution)
    assert found.entries == {"0.weight": 100}
    assert prices.order.positions("0.weight") == 64
    assert prices.order.crossed(["0.weight"]) == 3 * 8 * 64 + 5  # convolution, ReLU, flattened, outputs
    plain = 16 * prices.order.multiply_adds + CALL_WORK
    assert prices.predict(convolution) - 1 > 16 * 100 * 64 * GATHERED_WORK / max(plain, LEAST_WORK)
    product = 5 * prices.touched(head).most ** 2
    once = product * READ_WORK + HEAD_OPERATORS * OPERATOR_WORK
    expected = (16 * product + once) / max(plain, LEAST_WORK)
    assert prices.predict(head) - 1 == pytest.approx(expected)


def test_added_weights_are_part_of_every_price() -> None:
    torch.manual_seed(0)
    batches = [(torch.randn(6, 3, 8, 8), torch.randint(0, 5, (6,)))]
    job = make_job(convolutions(), batches, 5, outputs=5)
    adding = replace(job, layers=choose_layers(job.network, job.example, kind_of(job.example), "3"))
    head = torch.arange(300, 400)
    alone, added = (PriceModel.of(one, one.example[:1]).predict(head) for one in (job, adding))
    assert added > alone + ADDED_OPERATORS * OPERATOR_WORK / LEAST_WORK
