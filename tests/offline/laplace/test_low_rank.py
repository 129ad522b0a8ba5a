"""offline/laplace/low_rank.py against matrices written out in float64, and what must hold whatever the curvature."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import probity.offline.laplace.low_rank
from probity.offline.laplace.low_rank import LowRank, low_rank, low_rank_errors
from probity.service.maths.posterior_factor import LowRankPosterior

Array = npt.NDArray[Any]


def draw(seed: int, size: int, rows: int, decay: float = 6.0) -> tuple[Tensor, Tensor, Tensor]:
    """Curvature eigenvalues that decay over `decay` decades, ascending as eigh gives them; eigenvectors; rows."""
    rng = np.random.default_rng(seed)
    values = np.logspace(3 - decay, 3, size)
    vectors = np.linalg.qr(rng.normal(size=(size, size)))[0]
    return torch.as_tensor(values), torch.as_tensor(vectors), torch.as_tensor(rng.normal(size=(rows, size)))


def dense_errors(values: Tensor, vectors: Tensor, prior: float, rows: Tensor) -> Array:
    """Largest relative error for each k from 0 to S, each covariance as a matrix."""
    e, q, j = values.numpy(), vectors.numpy(), rows.numpy()
    size, order = len(e), np.argsort(-e)
    truth = np.einsum("ns,st,nt->n", j, np.linalg.inv(q @ np.diag(e) @ q.T + prior * np.eye(size)), j)
    errors = []
    for k in range(size + 1):
        u, top = q[:, order[:k]], e[order[:k]]
        sigma = u @ np.diag(1 / (top + prior)) @ u.T + (np.eye(size) - u @ u.T) / prior
        errors.append((np.einsum("ns,st,nt->n", j, sigma, j) / truth - 1).max())
    return np.array(errors)


@pytest.mark.parametrize("prior", [1e-2, 1.0, 100.0])
@pytest.mark.parametrize(("size", "rows"), [(1, 1), (6, 1), (30, 20)])
def test_errors_are_those_of_the_covariances_written_out(size: int, rows: int, prior: float) -> None:
    values, vectors, sample = draw(0, size, rows)
    found = low_rank_errors(values, vectors, prior, sample)
    assert found.shape == (size + 1,)
    assert found.dtype == torch.float64
    expected = dense_errors(values, vectors, prior, sample)
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-6, atol=1e-10)


@pytest.mark.parametrize("tolerance", [0.0, 1e-6, 0.01, 0.1, 5.0, 1e9])
def test_the_smallest_rank_within_the_tolerance_is_taken(tolerance: float) -> None:
    values, vectors, sample = draw(1, 40, 25)
    errors = dense_errors(values, vectors, 1.0, sample)
    chosen = low_rank(values, vectors, 1.0, sample, tolerance)
    expected = 40 if tolerance == 0 else max(1, int(np.argmax(errors <= tolerance)))
    assert chosen.rank == expected
    assert chosen.error <= tolerance
    assert chosen.error == pytest.approx(errors[expected], rel=1e-6, abs=1e-10)
    np.testing.assert_array_equal(chosen.eigenvalues, values.numpy()[::-1][:expected])
    np.testing.assert_array_equal(chosen.eigenvectors, vectors.numpy()[:, ::-1][:, :expected])


@given(
    seed=st.integers(0, 2**32 - 1),
    size=st.integers(1, 12),
    rows=st.integers(1, 6),
    decay=st.floats(0, 12),
    prior=st.floats(1e-3, 1e3),
    tolerance=st.sampled_from([0.0, 1e-3, 0.1, 1.0]),
)
def test_the_served_variance_is_within_the_tolerance_and_never_below(
    seed: int, size: int, rows: int, decay: float, prior: float, tolerance: float
) -> None:
    values, vectors, sample = draw(seed, size, rows, decay)
    errors = low_rank_errors(values, vectors, prior, sample)
    assert bool((errors[1:] <= errors[:-1]).all())
    assert bool((errors >= 0).all())
    assert float(errors[-1]) == 0
    chosen = low_rank(values, vectors, prior, sample, tolerance)
    truth = ((sample @ vectors).square() / (values + prior)).sum(1).numpy()
    served = posterior(chosen, prior).variance(sample.unsqueeze(1).numpy())[:, 0]
    assert (served >= truth * (1 - 1e-9)).all()
    assert (served <= truth * (1 + chosen.error + 1e-9)).all()
    assert chosen.error <= tolerance


def posterior(chosen: LowRank, prior: float) -> LowRankPosterior:
    return LowRankPosterior(chosen.eigenvalues, chosen.eigenvectors, prior)


def test_curvature_of_few_directions_needs_no_more_than_those() -> None:
    """A curvature of rank 3: nothing is lost with three eigenpairs, and the rest is the prior exactly."""
    _, vectors, sample = draw(2, 20, 10)
    values = torch.zeros(20, dtype=torch.float64)
    values[[4, 9, 17]] = torch.tensor([5.0, 50.0, 0.5], dtype=torch.float64)
    chosen = low_rank(values, vectors, 0.1, sample, tolerance=0.0)
    assert chosen.rank == 3
    assert chosen.error == 0
    assert chosen.eigenvalues.tolist() == [50.0, 5.0, 0.5]


def test_no_curvature_at_all_keeps_one_direction() -> None:
    _, vectors, sample = draw(3, 5, 4)
    chosen = low_rank(torch.zeros(5, dtype=torch.float64), vectors, 2.0, sample, tolerance=0.0)
    assert (chosen.rank, chosen.error) == (1, 0.0)
    np.testing.assert_allclose(
        posterior(chosen, 2.0).variance(sample.unsqueeze(1).numpy())[:, 0], sample.square().sum(1) / 2, rtol=1e-12
    )


def test_chunks_types_and_shapes_of_the_sample_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    values, vectors, sample = draw(4, 15, 24)
    expected = low_rank_errors(values, vectors, 0.5, sample)
    torch.testing.assert_close(low_rank_errors(values, vectors, 0.5, sample.reshape(8, 3, 15)), expected)
    torch.testing.assert_close(low_rank_errors(values, vectors, 0.5, sample.float()), expected, rtol=1e-4, atol=1e-6)
    monkeypatch.setattr(
        probity.offline.laplace.low_rank, "MEMORY_BYTES", 5 * 8 * probity.offline.laplace.low_rank.WORKING_COPIES * 15
    )
    torch.testing.assert_close(low_rank_errors(values, vectors, 0.5, sample), expected, rtol=1e-12, atol=0)
    monkeypatch.setattr(probity.offline.laplace.low_rank, "MEMORY_BYTES", 1)
    torch.testing.assert_close(low_rank_errors(values, vectors, 0.5, sample), expected, rtol=1e-12, atol=0)


def test_a_row_of_zeros_has_no_error() -> None:
    values, vectors, sample = draw(5, 8, 3)
    with_zeros = torch.cat([sample, torch.zeros(2, 8, dtype=torch.float64)])
    found, expected = (low_rank_errors(values, vectors, 1.0, rows) for rows in (with_zeros, sample))
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-15)  # kernels differ in the number of rows
    assert not low_rank_errors(values, vectors, 1.0, with_zeros[3:]).any()


def test_nothing_given_is_changed() -> None:
    given = draw(6, 9, 4)
    before = [tensor.clone() for tensor in given]
    low_rank(*given[:2], 1.0, given[2], 0.1)
    assert all(map(torch.equal, given, before))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tolerance": -0.1}, "tolerance: found -0.1"),
        ({"tolerance": float("nan")}, "tolerance: found nan"),
        ({"tolerance": float("inf")}, "tolerance: found inf"),
        ({"prior_used": 0.0}, "prior_used: found 0.0"),
        ({"prior_used": float("nan")}, "prior_used: found nan"),
        ({"jacobian_sample": torch.zeros(0, 5)}, "jacobian_sample: found no rows"),
        ({"jacobian_sample": torch.full((2, 5), float("nan"))}, "jacobian_sample: found NaN or infinity"),
        ({"jacobian_sample": torch.zeros(2, 4)}, "Jacobian rows of 4 weights"),
        ({"spectrum_vectors": torch.eye(5, dtype=torch.float64)[:, :4]}, r"eigenvectors of shape \(5, 4\)"),
        ({"spectrum_values": torch.tensor([-1.0, 0, 1, 2, 3], dtype=torch.float64)}, "eigenvalues: found -1.0"),
        ({"spectrum_values": torch.full((5,), float("nan"), dtype=torch.float64)}, "eigenvalues: found nan"),
    ],
    ids=lambda item: item if isinstance(item, str) else "",
)
def test_what_does_not_fit_is_refused(changes: dict[str, Any], message: str) -> None:
    values, vectors, sample = draw(7, 5, 3)
    arguments: dict[str, Any] = {
        "spectrum_values": values,
        "spectrum_vectors": vectors,
        "prior_used": 1.0,
        "jacobian_sample": sample,
        "tolerance": 0.1,
    }
    with pytest.raises(ValueError, match=message):
        low_rank(**(arguments | changes))
