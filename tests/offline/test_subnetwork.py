"""Selection strategies: size, order, ties, determinism, and each one's rule against an explicit computation."""

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import offline.subnetwork
from offline.curvature import diagonal_ggn
from offline.jacobians import private_copy
from offline.layout import WeightLayout
from offline.likelihood import Likelihood
from offline.plan import make_jacobian
from offline.progress import silent
from offline.subnetwork import STRATEGY_FUNCTIONS, SelectionContext, largest, select

CPU = torch.device("cpu")
OPTIONS: dict[str, dict[str, Any]] = {name: {} for name in STRATEGY_FUNCTIONS} | {"wasserstein-swag": {"snapshots": 3}}
strategies = pytest.mark.parametrize("strategy", OPTIONS)
Batches = list[tuple[Tensor, Tensor]]


def context(
    model: nn.Module,
    batches: Batches,
    size: int,
    outputs: int = 2,
    seed: int = 0,
    likelihood: Likelihood = "classification",
) -> SelectionContext:
    network, layout = private_copy(model, CPU), WeightLayout.of(model)
    jacobian = make_jacobian(network, layout, torch.arange(layout.total), batches[0][0])
    return SelectionContext(
        network=network,
        layout=layout,
        weights=layout.flatten(dict(network.named_parameters())),
        size=size,
        outputs=outputs,
        seed=seed,
        likelihood=likelihood,
        batches=lambda: iter(batches),
        curvature_diagonal=lambda: diagonal_ggn(jacobian, batches, outputs, likelihood),
        track=silent,
    )


def problem() -> tuple[nn.Module, Batches]:
    """BatchNorm and dropout included; D = 65, the last layer has 12."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Tanh(), nn.Dropout(0.5), nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 2)
    )
    return model, [(torch.randn(6, 4), torch.randint(0, 2, (6,))) for _ in range(3)]


def dead_problem() -> tuple[nn.Module, Batches]:
    """Hidden unit 2 never fires: its 3 incoming weights, its bias and its 2 outgoing weights are dead; D = 26."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    with torch.no_grad():
        model[0].bias.copy_(torch.tensor([2.0, 2.0, -100.0, 2.0]))
    return model, [(torch.randn(8, 3), torch.randint(0, 2, (8,))) for _ in range(2)]


DEAD = {6, 7, 8, 14, 18, 22}


def explicit_diagonal(model: nn.Module, batches: Batches) -> np.ndarray:
    """diag(sum_n J^T (diag p - p p^T) J), float64, one example and output at a time."""
    model = private_copy(model, CPU, torch.float64)
    parameters = [p.requires_grad_(True) for p in model.parameters()]
    diagonal = np.zeros(sum(p.numel() for p in parameters))
    for x in torch.cat([inputs for inputs, _ in batches]).double():
        output = model(x.unsqueeze(0))[0]
        rows = [torch.autograd.grad(f, parameters, retain_graph=True) for f in output]
        j = np.stack([torch.cat([g.reshape(-1) for g in row]).numpy() for row in rows])
        p = torch.softmax(output.detach(), 0).numpy()
        diagonal += np.einsum("kd,kl,ld->d", j, np.diag(p) - np.outer(p, p), j)
    return diagonal


# --------------------------------------------------------------------------- every strategy


@pytest.mark.parametrize("size", [12, 30])
@strategies
def test_indices_are_ascending_and_as_many_as_asked_for(strategy: str, size: int) -> None:
    indices = select(strategy, context(*problem(), size), OPTIONS[strategy]).indices
    assert indices.dtype == torch.int64
    assert len(indices) == (12 if strategy == "last-layer" else size)
    assert bool((indices.diff() > 0).all())
    assert 0 <= int(indices[0]) <= int(indices[-1]) < 65


@strategies
def test_the_same_seed_gives_the_same_indices(strategy: str) -> None:
    first, second = (select(strategy, context(*problem(), 12), OPTIONS[strategy]) for _ in range(2))
    assert torch.equal(first.indices, second.indices)


def test_another_seed_gives_other_random_indices() -> None:
    first, second = (select("random", context(*problem(), 12, seed=seed), {}).indices for seed in (0, 1))
    assert not torch.equal(first, second)


@strategies
def test_the_network_comes_back_as_it_was(strategy: str) -> None:
    given = context(*problem(), 12)
    before = {name: tensor.clone() for name, tensor in given.network.state_dict().items()}
    select(strategy, given, OPTIONS[strategy])
    after = given.network.state_dict()
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert not any(p.requires_grad or p.grad is not None for p in given.network.parameters())
    assert not any(m.training or m._forward_hooks or m._forward_pre_hooks for m in given.network.modules())


@strategies
def test_an_unknown_option_is_named(strategy: str) -> None:
    with pytest.raises(ValueError, match=f"selection_options: found 'snap', expected .* for selection='{strategy}'"):
        select(strategy, context(*problem(), 12), {"snap": 3})


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_ties_go_to_the_smaller_index(size: int) -> None:
    assert (
        largest(np.array([1.0, 2.0, 2.0, 0.0, 2.0]), size).tolist()
        == {
            1: [1],
            2: [1, 2],
            3: [1, 2, 4],
            5: [0, 1, 2, 3, 4],
        }[size]
    )


# --------------------------------------------------------------------------- by curvature


@pytest.mark.parametrize("size", [1, 5, 20])
def test_wasserstein_laplace_takes_the_smallest_positive_curvature(size: int) -> None:
    model, batches = dead_problem()
    diagonal = explicit_diagonal(model, batches)
    assert set(np.flatnonzero(diagonal == 0)) == DEAD
    expected = sorted(sorted(set(range(26)) - DEAD, key=lambda d: diagonal[d])[:size])
    found = select("wasserstein-laplace", context(model, batches, size), {})
    assert found.dead_weights == len(DEAD)
    assert found.indices.tolist() == expected


def test_wasserstein_laplace_gives_ties_to_the_smaller_index() -> None:
    """All inputs alike: the weights of a linear regression have the same curvature, and none is dead."""
    batches = [(torch.ones(4, 3), torch.zeros(4, 2))]
    model = nn.Linear(3, 2, bias=False)
    found = select("wasserstein-laplace", context(model, batches, 4, likelihood="regression"), {})
    assert found.indices.tolist() == [0, 1, 2, 3]
    assert found.dead_weights == 0


@pytest.mark.parametrize("size", [1, 7, 20])
def test_random_weights_can_be_restricted_to_live_ones(size: int) -> None:
    for seed in range(5):
        found = select("random", context(*dead_problem(), size, seed=seed), {"live_only": True})
        assert found.dead_weights == len(DEAD)
        assert len(found.indices) == size
        assert not set(found.indices.tolist()) & DEAD


def test_random_weights_are_uniform_over_all_weights() -> None:
    given = [select("random", context(*dead_problem(), 13, seed=seed), {}) for seed in range(60)]
    counts = torch.bincount(torch.cat([result.indices for result in given]), minlength=26)
    assert all(result.dead_weights is None for result in given)
    assert counts.min() >= 15  # expected 30, standard deviation 3.9
    assert counts.max() <= 45


@pytest.mark.parametrize(("strategy", "options"), [("wasserstein-laplace", {}), ("random", {"live_only": True})])
def test_more_weights_than_live_ones_is_an_error(strategy: str, options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="found 21, expected at most 20: the other 6 weights have no curvature"):
        select(strategy, context(*dead_problem(), 21), options)


def test_magnitude_takes_the_largest_absolute_values() -> None:
    model = nn.Linear(3, 2)
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[0.1, -5.0, 2.0], [-2.0, 0.0, 3.0]]))
        model.bias.copy_(torch.tensor([-4.0, 2.0]))
    batches = [(torch.ones(2, 3), torch.tensor([0, 1]))]
    found = [select("magnitude", context(model, batches, size), {}).indices.tolist() for size in (2, 4, 5)]
    assert found == [[1, 6], [1, 2, 5, 6], [1, 2, 3, 5, 6]]


# --------------------------------------------------------------------------- last layer


class Backwards(nn.Module):
    """The head is defined first and called last; a weight of the root itself is used first."""

    def __init__(self, root_weight: bool) -> None:
        super().__init__()
        self.head, self.body = nn.Linear(3, 2), nn.Linear(4, 3)
        self.position = nn.Parameter(torch.ones(4), requires_grad=root_weight)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.tanh(self.body(x + self.position)))


@pytest.mark.parametrize("root_weight", [False, True], ids=["layers only", "weight of the root"])
def test_the_last_layer_is_the_one_called_last(root_weight: bool) -> None:
    """A vision transformer has such a root weight: its position embedding is not its last layer."""
    model, batches = Backwards(root_weight), problem()[1]
    indices = select("last-layer", context(model, batches, 1000), {}).indices
    start = 4 if root_weight else 0  # named_parameters() gives the root's own first
    assert indices.tolist() == list(range(start, start + 8))


def test_a_frozen_last_layer_is_passed_over() -> None:
    model, batches = problem()
    model[6].requires_grad_(False)  # type: ignore[index]
    given = context(model, batches, 25)
    located = given.layout.locate(select("last-layer", given, {}).indices)
    assert [(p.name, len(positions)) for p, positions in located] == [("4.weight", 20), ("4.bias", 5)]


def test_a_last_layer_that_is_too_large_is_an_error() -> None:
    with pytest.raises(ValueError, match="found 11, the last layer '6' has 12 weights; raise it to 12"):
        select("last-layer", context(*problem(), 11), {})


# --------------------------------------------------------------------------- SWAG


def linear_problem() -> tuple[nn.Linear, Batches]:
    torch.manual_seed(0)
    scale = torch.tensor([1.0, 0.5, 2.0])
    return nn.Linear(3, 2), [(scale * torch.randn(5, 3), 2 * torch.randn(5, 2) + 1) for _ in range(3)]


def swag_variance(
    model: nn.Linear, batches: Batches, snapshots: int, rate: float, momentum: float, decay: float
) -> np.ndarray:
    """Plain SGD with momentum on mean (f - y)^2 / (2 sigma^2), one snapshot an epoch, float64.

    sigma^2 is the variance of the targets, each output about its own mean.
    """
    w, b = (p.detach().double().numpy().copy() for p in (model.weight, model.bias))
    velocity_w, velocity_b = np.zeros_like(w), np.zeros_like(b)
    noise = torch.cat([y for _, y in batches]).double().numpy().var(axis=0).mean()
    taken = []
    for _ in range(snapshots):
        for inputs, targets in batches:
            x, y = inputs.double().numpy(), targets.double().numpy()
            error = (x @ w.T + b - y) / (noise * y.size)
            velocity_w = momentum * velocity_w + error.T @ x + decay * w
            velocity_b = momentum * velocity_b + error.sum(axis=0) + decay * b
            w, b = w - rate * velocity_w, b - rate * velocity_b
        taken.append(np.concatenate([w.reshape(-1), b]))
    return np.var(taken, axis=0)


@pytest.mark.parametrize(
    "options",
    [
        {"snapshots": 7, "learning_rate": 0.1, "momentum": 0.0, "weight_decay": 0.0},
        {"snapshots": 2, "learning_rate": 0.05, "momentum": 0.9, "weight_decay": 0.1},
    ],
)
def test_swag_takes_the_largest_variance_along_the_trajectory(
    options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    model, batches = linear_problem()
    expected = swag_variance(model, batches, *options.values())
    scores: list[np.ndarray] = []
    monkeypatch.setattr(offline.subnetwork, "largest", lambda s, size: scores.append(s) or largest(s, size))
    for size in range(1, 9):
        found = select("wasserstein-swag", context(model, batches, size, likelihood="regression"), options)
        assert found.indices.tolist() == sorted(np.argsort(-expected)[:size])
        assert found.dead_weights is None
        np.testing.assert_allclose(scores[-1], expected, rtol=1e-4)


def test_swag_by_default_takes_forty_snapshots_with_momentum(monkeypatch: pytest.MonkeyPatch) -> None:
    model, batches = linear_problem()
    scores: list[np.ndarray] = []
    monkeypatch.setattr(offline.subnetwork, "largest", lambda s, size: scores.append(s) or largest(s, size))
    select("wasserstein-swag", context(model, batches, 3, likelihood="regression"), {})
    np.testing.assert_allclose(scores[0], swag_variance(model, batches, 40, 0.01, 0.9, 0.0), rtol=1e-3)


def test_swag_does_not_diverge_on_a_network_that_fits_well() -> None:
    """Residuals of one hundredth of the targets: the default steps must not grow as the square of that."""
    model, batches = linear_problem()
    near = [(x, model(x).detach() + 0.01 * torch.randn(len(x), 2)) for x, _ in batches]
    assert len(select("wasserstein-swag", context(model, near, 3, likelihood="regression"), {}).indices) == 3


def test_swag_says_that_it_diverged() -> None:
    given = context(*linear_problem(), 3, likelihood="regression")
    with pytest.raises(ValueError, match=r"weights diverged at learning_rate=10000\.0; give a smaller one"):
        select("wasserstein-swag", given, {"learning_rate": 1e4, "snapshots": 50})


def test_swag_needs_two_snapshots() -> None:
    with pytest.raises(ValueError, match=r"selection_options\['snapshots'\]: found 1, expected at least 2"):
        select("wasserstein-swag", context(*linear_problem(), 3), {"snapshots": 1})
