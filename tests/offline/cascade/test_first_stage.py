"""offline/cascade/first_stage.py: which weights of the head the first stage takes, and what it refuses."""

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from offline import FitConfig, fit_bundle
from offline.cascade.first_stage import MOST_COST, check_saves, fit_first_stage, head_positions
from offline.fit import dry_run
from offline.jacobian.output_rule import ALL_OUTPUTS
from offline.job import Job, prepare, resolve_device
from offline.runtime.distributed import DistributedContext
from offline.runtime.progress import silent
from offline.selection.auto.price import PriceModel
from tests.support.small_fit import batches

CLASSES = 8


def job_of(model: nn.Module, **options: object) -> Job:
    config = FitConfig.model_validate({"subnetwork_size": 40, "cascade": True, "device": "cpu", **options})
    train = batches(40, classes=CLASSES)
    return prepare(model, train, config, resolve_device("cpu"), DistributedContext(), silent)


def network(width: int = 6) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, width), nn.ReLU(), nn.Linear(width, CLASSES))


def test_it_takes_live_weights_of_the_head() -> None:
    model = network()
    with torch.no_grad():
        first = model[0]
        assert isinstance(first, nn.Linear)
        first.bias[2] = -1e3  # feature 2 is 0 for every input
    job = job_of(model, subnetwork_size=56)
    chosen = fit_first_stage(job, 8).jacobian.indices
    head = 4 * 6 + 6
    dead = {head + 6 * k + 2 for k in range(CLASSES)}
    assert set(chosen.tolist()) == set(range(head, head + 7 * CLASSES)) - dead


def test_as_many_as_configured_drawn_by_the_seed() -> None:
    chosen = [fit_first_stage(job_of(network(), seed=seed), 8).jacobian.indices.tolist() for seed in (0, 0, 1)]
    assert chosen[0] == chosen[1] != chosen[2]
    assert len(chosen[0]) == 40
    assert chosen[0] == sorted(chosen[0])


def test_a_large_head_gives_as_many_as_are_cheap() -> None:
    job = job_of(network(width=700), subnetwork_size=4000)
    chosen = fit_first_stage(job, 8).jacobian.indices
    prices = PriceModel.of(job, job.example[:1])
    assert prices.predict(chosen, ALL_OUTPUTS) <= MOST_COST < prices.predict(head_positions(job), ALL_OUTPUTS)
    assert len(chosen) in {4000 >> n for n in range(8)}


def test_the_kinds_that_are_open_to_choice_count() -> None:
    assert len(head_positions(job_of(network()))) == 7 * CLASSES
    assert len(head_positions(job_of(network(), kinds="weights"))) == 6 * CLASSES


def test_some_chosen_weights_must_lie_outside_the_head() -> None:
    job = job_of(network())
    check_saves(job, torch.tensor([0, 40]))
    with pytest.raises(ValueError, match="found all 2 chosen weights in the linear head '2' already"):
        check_saves(job, torch.tensor([40, 41]))


class Tied(nn.Module):
    """The head's weights are those of a hidden layer."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.hidden, self.head = nn.Linear(4, CLASSES), nn.Linear(CLASSES, CLASSES), nn.Linear(8, CLASSES)
        self.head.weight = self.hidden.weight

    def forward(self, x: Tensor) -> Tensor:
        head: Tensor = self.head(torch.tanh(self.hidden(torch.tanh(self.first(x)))))
        return head


def test_a_head_that_shares_its_weights_is_refused() -> None:
    torch.manual_seed(0)
    with pytest.raises(ValueError, match="cascade: found"):
        fit_first_stage(job_of(Tied()), 8)


def test_a_head_without_live_weights_is_refused() -> None:
    model = network()
    with torch.no_grad():
        last = model[2]
        assert isinstance(last, nn.Linear)
        last.bias[0] = 1e4  # so certain of one class that nothing has curvature
    with pytest.raises(ValueError, match="no weight of the linear head '2' with curvature"):
        fit_first_stage(job_of(model), 8)


def test_a_dry_run_refuses_a_network_without_a_linear_head(tmp_path: Path) -> None:
    model, config = nn.Sequential(network(), nn.Tanh()), FitConfig(subnetwork_size=10, cascade=True, device="cpu")
    train = batches(40, classes=CLASSES)
    with pytest.raises(ValueError, match="cascade: found a network that does not end in a Linear layer"):
        dry_run(model, train, config)
    with pytest.raises(ValueError, match="cascade: found a network that does not end in a Linear layer"):
        fit_bundle(model, train, tmp_path / "bundle", calibration_loader=train, config=config)
