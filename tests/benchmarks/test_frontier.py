"""The controls of the experiment on quality and price, on a network that tells bright halves of small images apart."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.experiments.frontier.distances import distance_scaled
from benchmarks.experiments.frontier.plot import GAINERS, PLAIN, draw
from benchmarks.experiments.frontier.rows import METHODS
from benchmarks.experiments.frontier.run import QUANTITIES, summarise
from benchmarks.experiments.frontier.temperatures import Logits, at, scores_of, tempered
from benchmarks.experiments.kept import with_earlier
from demur.offline.data.likelihood import class_log_likelihood
from demur.service.maths.predictive import entropy

BUDGET = 0.02
Examples = tuple[Tensor, Tensor]


def images(count: int, seed: int) -> Examples:
    """Noise, brighter in one of three rows of blocks; one label in ten is wrong."""
    draw = torch.Generator().manual_seed(seed)
    classes = torch.randint(3, (count,), generator=draw)
    x = 0.3 * torch.randn(count, 1, 6, 6, generator=draw)
    for k in range(3):
        x[classes == k, :, 2 * k : 2 * k + 2] += 1.0
    wrong = torch.rand(count, generator=draw) < 0.1
    return x, torch.where(wrong, (classes + 1) % 3, classes)


@pytest.fixture(scope="module")
def model() -> nn.Module:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Flatten(), nn.Linear(36, 16), nn.ReLU(), nn.Linear(16, 3))
    x, y = images(300, 0)
    optimizer = torch.optim.Adam(network.parameters(), 0.02)
    for _ in range(60):
        optimizer.zero_grad()
        F.cross_entropy(network(x), y).backward()
        optimizer.step()
    network.eval()
    return network


def worth(probabilities: np.ndarray, classes: Tensor) -> float:
    return float(class_log_likelihood(probabilities, classes.numpy()).mean())


def test_outputs_are_computed_once_for_each_set_of_images(model: nn.Module) -> None:
    logits, (first, _), (second, _) = Logits(model), images(5, 1), images(5, 2)
    found = logits(first)
    assert logits(first) is found
    np.testing.assert_allclose(logits(second), model(second).detach().double(), rtol=1e-6)


def test_a_temperature_spends_its_budget_and_no_more(model: nn.Module) -> None:
    networks, held_out = [Logits(model)], images(200, 3)
    best, spent = tempered(networks, held_out), tempered(networks, held_out, BUDGET)
    most = worth(best.probabilities(held_out[0]), held_out[1])
    assert most == pytest.approx(scores_of(networks, held_out).max())
    assert most - BUDGET <= worth(spent.probabilities(held_out[0]), held_out[1]) < most - BUDGET / 2
    assert spent.facts["temperature"] > best.facts["temperature"]


def test_temperature_one_is_the_mean_of_the_networks(model: nn.Module) -> None:
    x, _ = images(5, 4)
    other = nn.Sequential(nn.Flatten(), nn.Linear(36, 3))
    expected = (torch.softmax(model(x), 1) + torch.softmax(other(x), 1)) / 2
    np.testing.assert_allclose(at([Logits(model), Logits(other)], 1.0).probabilities(x), expected.detach(), rtol=1e-5)


def test_distances_raise_the_temperature_where_images_are_far_within_the_budget(model: nn.Module) -> None:
    logits, held_out = Logits(model), images(200, 3)
    method = distance_scaled(model, logits, images(300, 0), held_out, BUDGET)
    best = tempered([logits], held_out)
    usual = method.probabilities(held_out[0])
    assert worth(usual, held_out[1]) >= worth(best.probabilities(held_out[0]), held_out[1]) - 1.01 * BUDGET
    assert (usual.argmax(1) == logits(held_out[0]).argmax(1)).all()
    far = -3 * held_out[0]
    assert entropy(method.probabilities(far)).mean() > entropy(best.probabilities(far)).mean()
    assert all(slope >= 0 for slope in method.facts["slopes"].values())


def test_a_summary_has_what_all_seeds_have() -> None:
    row = {
        "price": 1.0,
        "log_likelihood": {"usual": -1.0, "specks": -2.0},
        "ece": {"usual": 0.1, "specks": 0.2},
        "auroc": {"a": 0.9, "b": 0.1},
        "accuracy": 0.5,
        "labels_differ": 0.0,
    }
    other = row | {"price": 3.0}
    runs = [{"network": "n", "methods": {"m": row, "dear": row}}, {"network": "n", "methods": {"m": other}}]
    summary = summarise(runs)["n"]
    found = summary["m"]
    assert (found["seeds"], summary["dear"]["seeds"]) == (2, 1)
    assert found["price"] == {"mean": 2.0, "std": 1.0}
    assert found["unseen"]["mean"] == -2.0
    assert found["auroc"]["mean"] == 0.9  # the first foreign set
    assert set(found) - {"seeds"} < set(QUANTITIES)
    assert "rotation" not in found
    assert "score_auroc" not in found


def test_a_method_that_is_measured_again_takes_the_place_of_the_earlier_one() -> None:
    def run_of(seed: int, **methods: int) -> dict[str, Any]:
        return {"network": "mnist", "seed": seed, "methods": {name.replace("_", " "): n for name, n in methods.items()}}

    earlier = [run_of(0, plain_network=1, default_bundle=2, gone=3), run_of(1, plain_network=4)]
    found = with_earlier([run_of(0, default_bundle=5)], earlier, METHODS)
    assert found == [run_of(0, plain_network=1, default_bundle=5), run_of(1, plain_network=4)]


def test_two_pictures_and_one_where_methods_are_missing(tmp_path: Path) -> None:
    quantities = ("price", "usual", "rotation", "unseen", "auroc")
    values = {quantity: {"mean": 1.0, "std": 0.1} for quantity in quantities}
    summary = {name: dict.fromkeys((PLAIN, *GAINERS), values) for name in ("mnist", "cifar")}
    draw({"quick": False, "summary": summary}, tmp_path / "all.png")
    draw({"quick": True, "summary": {"mnist": {PLAIN: values}}}, tmp_path / "some.png")
    assert {file.name for file in tmp_path.iterdir()} == {"all.png", "all-gains.png", "some.png"}
