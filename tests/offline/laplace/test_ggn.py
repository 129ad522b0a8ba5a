"""The GGN against an explicit float64 sum over examples: any batch split, any order, classification and regression."""

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from demur.offline.data.likelihood import Classification, Regression, likelihood_of
from demur.offline.jacobian.jacobian import SubnetworkJacobian
from demur.offline.jacobian.plan import make_jacobian
from demur.offline.laplace.ggn import UPDATE_ROWS, Gram, accumulate_ggn, default_rows, diagonal_ggn, mirror
from demur.offline.network.model_copy import private_copy
from demur.offline.network.weights import WeightLayout
from demur.offline.runtime.blocks import BLOCK
from demur.offline.runtime.distributed import DistributedContext
from demur.service.format.manifest import Task
from tests import reference

CPU = torch.device("cpu")
EXAMPLES = 11


def test_more_classes_than_rows_leave_a_little_out() -> None:
    """The sum of J^T c^T c J over the examples, which is at most the whole curvature."""
    model, outputs = mlp(6), 6
    inputs, targets = torch.randn(EXAMPLES, 3), torch.randint(0, outputs, (EXAMPLES,))
    every = torch.arange(WeightLayout.of(model).total)
    jacobian = make_jacobian(private_copy(model, CPU), WeightLayout.of(model), every, inputs)
    found = accumulate_ggn(jacobian, [(inputs, targets)], Classification(outputs, most_rows=3), rows=4).ggn.numpy()
    whole = accumulate_ggn(jacobian, [(inputs, targets)], Classification(outputs), rows=4).ggn.numpy()
    mean, exact = reference.full_jacobian(model, inputs)
    pairs = zip(mean, exact, strict=True)
    left_out = sum(j.T @ reference.curvature_left_out(f, 3) @ j for f, j in pairs)
    np.testing.assert_allclose(whole - found, left_out, atol=1e-5 * np.abs(whole).max())
    diagonal = diagonal_ggn(jacobian, [(inputs, targets)], Classification(outputs, most_rows=3))
    np.testing.assert_allclose(diagonal.numpy(), np.diag(found), rtol=1e-5)


class Scaled(nn.Module):
    """Parameters outside any layer: they take the generic route."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.linspace(0.5, 1.5, size))

    def forward(self, x: Tensor) -> Tensor:
        return self.scale * x


def mlp(outputs: int) -> nn.Module:
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, outputs))


def conv(outputs: int) -> nn.Module:
    """Convolution (structured), norm and scale (generic), linear (structured)."""
    return nn.Sequential(
        nn.Conv2d(1, 2, 2, bias=False), nn.BatchNorm2d(2), nn.Tanh(), nn.Flatten(), Scaled(8), nn.Linear(8, outputs)
    )


NETWORKS: dict[str, tuple[Callable[[int], nn.Module], tuple[int, ...]]] = {
    "mlp": (mlp, (3,)),
    "conv": (conv, (1, 3, 3)),
}
LIKELIHOODS: tuple[tuple[Task, int], ...] = (
    ("classification", 2),
    ("classification", 4),
    ("multilabel", 3),
    ("regression", 1),
    ("regression", 3),
)
everything = pytest.mark.parametrize("network", NETWORKS)
likelihoods = pytest.mark.parametrize(("likelihood", "outputs"), LIKELIHOODS)


def make(
    network: str, likelihood: Task, outputs: int, count: int = EXAMPLES
) -> tuple[SubnetworkJacobian, Tensor, Tensor]:
    """A float64 Jacobian of all weights, inputs and targets."""
    torch.manual_seed(0)
    build, shape = NETWORKS[network]
    model = build(outputs)
    inputs = torch.randn(count, *shape, dtype=torch.float64)
    targets = torch.randint(0, outputs, (count,)) if likelihood == "classification" else torch.randn(count, outputs)
    if likelihood == "multilabel":
        targets = (targets > 0).float()
    layout = WeightLayout.of(model)
    copy = private_copy(model, CPU, torch.float64)
    return make_jacobian(copy, layout, torch.arange(layout.total), inputs), inputs, targets


def explicit_ggn(model: nn.Module, inputs: Tensor, likelihood: Task) -> np.ndarray:
    """sum_n J_n^T Lambda_n J_n, one example and one output at a time."""
    parameters = [p.requires_grad_(True) for p in model.parameters()]
    total = sum(p.numel() for p in parameters)
    h = np.zeros((total, total))
    for x in inputs:
        output = model(x.unsqueeze(0))[0]
        rows = [torch.autograd.grad(f, parameters, retain_graph=True) for f in output]
        j = np.stack([torch.cat([g.reshape(-1) for g in row]).numpy() for row in rows])
        h += j.T @ reference.output_hessian(output.detach().numpy(), likelihood, 1.0) @ j
    for parameter in parameters:
        parameter.requires_grad_(False)
    return h


def close(found: Tensor, expected: np.ndarray) -> None:
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-9, atol=1e-12 * np.abs(expected).max())


@likelihoods
@everything
def test_ggn_and_its_diagonal_equal_the_explicit_sum(network: str, likelihood: Task, outputs: int) -> None:
    jacobian, inputs, targets = make(network, likelihood, outputs)
    expected = explicit_ggn(jacobian.model, inputs, likelihood)
    curvature = accumulate_ggn(jacobian, [(inputs, targets)], likelihood_of(likelihood, outputs))
    close(curvature.ggn, expected)
    assert curvature.ggn.dtype == torch.float64
    assert torch.equal(curvature.ggn, curvature.ggn.T)
    close(diagonal_ggn(jacobian, [(inputs, targets)], likelihood_of(likelihood, outputs)), np.diagonal(expected))


@settings(derandomize=True, deadline=None, max_examples=25)
@given(st.permutations(range(EXAMPLES)), st.integers(1, EXAMPLES + 5), st.sampled_from(LIKELIHOODS))
def test_neither_batches_nor_order_matter(order: list[int], batch: int, kind: tuple[Task, int]) -> None:
    """Batches of one, and one batch larger than the data, included."""
    likelihood, outputs = kind
    jacobian, inputs, targets = make("mlp", likelihood, outputs)
    pairs = list(zip(inputs[order].split(batch), targets[order].split(batch), strict=True))
    curvature = accumulate_ggn(jacobian, pairs, likelihood_of(likelihood, outputs))
    expected = explicit_ggn(jacobian.model, inputs, likelihood)
    close(curvature.ggn, expected)
    close(diagonal_ggn(jacobian, pairs, likelihood_of(likelihood, outputs)), np.diagonal(expected))
    assert curvature.examples == EXAMPLES


@everything
def test_the_chunks_change_nothing(network: str) -> None:
    jacobian, inputs, targets = make(network, "classification", 3)
    expected = explicit_ggn(jacobian.model, inputs, "classification")
    for rows in (1, 4, 1000):
        close(accumulate_ggn(jacobian, [(inputs, targets)], Classification(3), rows=rows).ggn, expected)
        close(diagonal_ggn(jacobian, [(inputs, targets)], Classification(3), rows=rows), np.diagonal(expected))


@everything
def test_a_subnetwork_has_its_rows_and_columns(network: str) -> None:
    jacobian, inputs, targets = make(network, "classification", 3)
    expected = explicit_ggn(jacobian.model, inputs, "classification")
    chosen = torch.arange(1, jacobian.size, 3)
    part = make_jacobian(jacobian.model, jacobian.layout, chosen, inputs)
    close(
        accumulate_ggn(part, [(inputs, targets)], Classification(3)).ggn,
        expected[np.ix_(chosen.numpy(), chosen.numpy())],
    )
    close(diagonal_ggn(part, [(inputs, targets)], Classification(3)), np.diagonal(expected)[chosen])


def test_single_precision_is_accumulated_in_float64() -> None:
    """Two thousand examples: the sum's relative error stays that of one float32 derivative."""
    jacobian, inputs, targets = make("mlp", "classification", 3, 2000)
    expected = accumulate_ggn(jacobian, [(inputs, targets)], Classification(3)).ggn
    single = make_jacobian(private_copy(jacobian.model, CPU), jacobian.layout, jacobian.indices, inputs.float())
    found = accumulate_ggn(single, [(inputs.float(), targets)], Classification(3)).ggn
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6 * float(expected.max()))


def test_the_ggn_of_a_linear_regression_has_no_factor_two() -> None:
    """The Hessian of sum (y - w x)^2 / 2 in w is sum x^2: 1 + 4 + 9."""
    model = nn.Linear(1, 1, bias=False)
    x = torch.tensor([[1.0], [2.0], [3.0]])
    jacobian = make_jacobian(private_copy(model, CPU), WeightLayout.of(model), torch.tensor([0]), x)
    assert accumulate_ggn(jacobian, [(x, x)], Regression(1)).ggn.tolist() == [[14.0]]
    assert diagonal_ggn(jacobian, [(x, x)], Regression(1)).tolist() == [14.0]


# --------------------------------------------------------------------------- what else is counted


def test_classification_counts_correct_examples() -> None:
    jacobian, inputs, _ = make("mlp", "classification", 3)
    best = jacobian.model(inputs).argmax(1)
    targets = torch.where(torch.arange(EXAMPLES) < 4, (best + 1) % 3, best)
    curvature = accumulate_ggn(jacobian, zip(inputs.split(3), targets.split(3), strict=True), Classification(3))
    assert (curvature.correct, curvature.examples) == (EXAMPLES - 4, EXAMPLES)
    assert curvature.squared_error == 0


def test_regression_sums_squared_errors_over_examples_and_outputs() -> None:
    jacobian, inputs, targets = make("mlp", "regression", 3)
    curvature = accumulate_ggn(jacobian, zip(inputs.split(3), targets.split(3), strict=True), Regression(3))
    mean = jacobian.model(inputs)
    expected = sum(float(targets[n, k] - mean[n, k]) ** 2 for n in range(EXAMPLES) for k in range(3))
    assert curvature.squared_error == pytest.approx(expected)
    assert (curvature.correct, curvature.examples) == (0, EXAMPLES)


def test_flat_targets_of_one_output_are_not_broadcast() -> None:
    """(B,) against (B, 1) would broadcast to (B, B)."""
    jacobian, inputs, targets = make("mlp", "regression", 1)
    flat, column = (accumulate_ggn(jacobian, [(inputs, t)], Regression(1)) for t in (targets[:, 0], targets))
    assert flat.squared_error == column.squared_error


def test_targets_are_checked() -> None:
    jacobian, inputs, _ = make("mlp", "classification", 3)
    with pytest.raises(ValueError, match="from 7 to 7, expected 0 to 2"):
        accumulate_ggn(jacobian, [(inputs, torch.full((EXAMPLES,), 7))], Classification(3))


@pytest.mark.parametrize("function", [accumulate_ggn, diagonal_ggn])
def test_overflow_is_an_error(function: Callable[..., object]) -> None:
    """Also for the diagonal: otherwise every weight would be called dead."""
    jacobian, inputs, targets = make("mlp", "regression", 1)
    jacobian.model.get_parameter("2.weight").fill_(math.inf)
    with pytest.raises(ValueError, match="curvature is not finite"):
        function(jacobian, [(inputs, targets)], Regression(1))


# --------------------------------------------------------------------------- symmetric updates


@settings(derandomize=True, deadline=None, max_examples=12)
@given(
    st.sampled_from([1, 2, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK + 7]),
    st.lists(st.integers(1, UPDATE_ROWS), min_size=1, max_size=4),
)
def test_gathered_rows_give_the_whole_symmetric_matrix(size: int, chunks: list[int]) -> None:
    """Sizes about the width of a block; chunks that fill the buffer, and more."""
    rows = [torch.randn(count, size, dtype=torch.float64) for count in chunks]
    gram = Gram(size, 1, CPU)
    for chunk in rows:
        gram.reserve(len(chunk)).copy_(chunk)
    found, every = gram.finish(), torch.cat(rows)
    torch.testing.assert_close(found, every.T @ every, rtol=1e-12, atol=1e-11)
    assert torch.equal(found, found.T)
    assert found is gram.matrix


def test_the_sum_so_far_can_be_asked_at_any_time() -> None:
    gram = Gram(3, 1, CPU)
    for _ in range(2):
        gram.reserve(2).fill_(1.0)
        assert torch.equal(gram.sum_so_far(), gram.sum_so_far())
    assert torch.equal(gram.finish(), torch.full((3, 3), 4.0, dtype=torch.float64))


def test_mirroring_reads_the_lower_half_only() -> None:
    matrix = torch.randn(BLOCK + 5, BLOCK + 5, dtype=torch.float64)
    lower = matrix.tril()
    assert torch.equal(mirror(matrix), lower + lower.tril(-1).T)


@pytest.mark.parametrize(
    ("outputs", "width", "rows"), [(1, 1, 512), (10, 2000, 512), (10, 100_000, 22), (10, 10**9, 1)]
)
def test_rows_by_default(outputs: int, width: int, rows: int) -> None:
    assert default_rows(outputs, width) == rows


@pytest.mark.parametrize("world_size", [1, 2, 3, 20])
def test_the_shards_take_every_batch_once(world_size: int) -> None:
    """More processes than batches, too: a process without any has nothing to add."""
    taken = [
        batch
        for rank in range(world_size)
        for batch in DistributedContext(rank, world_size).shard_batches(iter(range(11)))
    ]
    assert sorted(taken) == list(range(11))
