"""Bundles with a low-rank posterior: written and read back, served, and refused where their tensors cannot be right."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from probity.service.bundle import (
    MANIFEST,
    POSTERIOR,
    CholeskyPosterior,
    LowRankPosterior,
    Posterior,
    PosteriorFactor,
    read_bundle,
)
from probity.service.format.posterior_tensors import BLOCK_COLUMNS, ORTHONORMAL_TOLERANCE
from probity.service.inference.predictor import Predictor
from tests.support.bundles import (
    FEATURE_SPEC,
    LOW_RANK_PRIOR,
    Synthetic,
    draw_cholesky,
    draw_low_rank,
    rewrite,
    write_linear,
)
from tests.support.tamper import (
    Change,
    Tensors,
    contents,
    copy_bundle,
    load_json,
    put_tensors,
    refusal,
    replaced,
    save_json,
    setter,
    swap,
    tensors,
)

Array = npt.NDArray[Any]
SIZE, RANK = 6, 3


@pytest.fixture(scope="session")
def low_rank(shelf: Path) -> Synthetic:
    return write_linear(shelf / "low-rank", outputs=3, spec=FEATURE_SPEC, size=SIZE, rank=RANK)


@pytest.fixture
def folder(low_rank: Synthetic, tmp_path: Path) -> Path:
    """A copy, to break."""
    return copy_bundle(low_rank.path, tmp_path / "bundle")


def test_it_comes_back_as_it_was_written(low_rank: Synthetic) -> None:
    bundle, written = read_bundle(low_rank.path), low_rank.posterior
    assert isinstance(bundle.posterior, LowRankPosterior)
    assert isinstance(written, LowRankPosterior)
    np.testing.assert_array_equal(bundle.posterior.eigenvalues, written.eigenvalues)
    np.testing.assert_array_equal(bundle.posterior.eigenvectors, written.eigenvectors)
    assert bundle.posterior.eigenvectors.dtype == bundle.posterior.eigenvalues.dtype == np.float32
    assert bundle.posterior.prior_precision == bundle.manifest.prior.used == LOW_RANK_PRIOR.used
    assert dataclasses.replace(bundle.manifest, files={}) == low_rank.manifest
    assert set(tensors(low_rank.path, POSTERIOR)) == {"eigenvalues", "eigenvectors", "subnetwork_indices"}


def test_from_float64_in_any_memory_order_the_same_bytes_are_written(low_rank: Synthetic, tmp_path: Path) -> None:
    posterior = low_rank.posterior
    assert isinstance(posterior, LowRankPosterior)
    values, vectors = posterior.eigenvalues.astype(np.float64), np.asfortranarray(posterior.eigenvectors, np.float64)
    again = rewrite(
        low_rank.path, tmp_path / "again", posterior=LowRankPosterior(values, vectors, posterior.prior_precision)
    )
    assert contents(again) == contents(low_rank.path)


@pytest.mark.parametrize("rank", [1, SIZE])
def test_it_is_served(low_rank: Synthetic, rank: int, tmp_path: Path) -> None:
    other = write_linear(tmp_path / "other", outputs=3, spec=FEATURE_SPEC, size=SIZE, rank=rank, seed=rank)
    for synthetic in (low_rank, other):
        inputs = np.random.default_rng(0).normal(size=(20, 4)).astype(np.float32)
        prediction = Predictor.load(synthetic.path).predict(inputs)
        np.testing.assert_allclose(prediction.mean, synthetic.mean(inputs), rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(prediction.variance, synthetic.variance(inputs), rtol=1e-4)


@pytest.mark.parametrize("case", ["cholesky", "another rank", "another size", "another prior", "rank not stated"])
def test_a_posterior_that_the_manifest_does_not_describe_is_not_written(
    folder: Path, case: str, tmp_path: Path
) -> None:
    rng, used = np.random.default_rng(0), LOW_RANK_PRIOR.used
    posteriors: dict[str, PosteriorFactor] = {
        "cholesky": draw_cholesky(rng, SIZE),
        "another rank": draw_low_rank(rng, SIZE, RANK + 1, used),
        "another size": draw_low_rank(rng, SIZE - 1, RANK, used),
        "another prior": draw_low_rank(rng, SIZE, RANK, 2 * used),
        "rank not stated": draw_low_rank(rng, SIZE, RANK, used),
    }
    manifest = read_bundle(folder).manifest
    if case == "rank not stated":
        manifest = dataclasses.replace(manifest, posterior=Posterior("cholesky", SIZE, 0.0))
    before = contents(folder)
    for out in (tmp_path / "new", folder):
        with pytest.raises(ValueError, match=r"posterior: found \(.*expected \(.* as in the manifest"):
            rewrite(folder, out, manifest=manifest, posterior=posteriors[case])
    assert contents(folder) == before
    assert not (tmp_path / "new").exists()


def test_another_prior_precision_in_the_manifest_is_another_posterior(folder: Path) -> None:
    """The prior is stated once: in the manifest."""
    save_json(folder, replaced(load_json(folder), ("prior", "used"), 10.0))
    posterior = read_bundle(folder).posterior
    assert isinstance(posterior, LowRankPosterior)
    assert posterior.prior_precision == 10.0


VALUES, VECTORS = "eigenvalues", "eigenvectors"


def packed(loaded: Tensors) -> None:
    loaded["scale_tril_packed"] = np.ones(SIZE * (SIZE + 1) // 2, np.float32)


def only_packed(loaded: Tensors) -> None:
    packed(loaded)
    del loaded[VALUES], loaded[VECTORS]


WRONG: dict[str, tuple[Change, str]] = {
    "value NaN": (setter(VALUES, 1, np.nan), "'eigenvalues': found NaN or infinity"),
    "value infinite": (setter(VALUES, 0, np.inf), "'eigenvalues': found NaN or infinity"),
    "value negative": (setter(VALUES, -1, -1e-3), "eigenvalues: expected numbers of at least 0 in descending order"),
    "values ascending": (swap(VALUES, lambda a: a[::-1]), "at least 0 in descending order"),
    "values short": (swap(VALUES, lambda a: a[:-1]), "found shape (2,), expected (3,)"),
    "values float64": (swap(VALUES, lambda a: a.astype(np.float64)), "found dtype float64, expected float32"),
    "values missing": (lambda loaded: loaded.__delitem__(VALUES), "tensor 'eigenvalues' is missing"),
    "vector NaN": (setter(VECTORS, (2, 1), np.nan), "'eigenvectors': found NaN or infinity"),
    "vectors of zeros": (setter(VECTORS, slice(None), 0.0), "expected orthonormal columns"),
    "vectors too long": (swap(VECTORS, lambda a: a * np.float32(1.001)), "expected orthonormal columns"),
    "vectors too short": (swap(VECTORS, lambda a: a * np.float32(0.999)), "expected orthonormal columns"),
    "vectors huge": (swap(VECTORS, lambda a: a * np.float32(3e38)), "expected orthonormal columns"),
    "a vector twice": (setter(VECTORS, (slice(None), 1), 1 / np.sqrt(SIZE)), "expected orthonormal columns"),
    "one entry off": (setter(VECTORS, (0, 2), 0.9), "expected orthonormal columns"),
    "vectors transposed": (swap(VECTORS, lambda a: a.T), "found shape (3, 6), expected (6, 3)"),
    "vectors flat": (swap(VECTORS, np.ravel), "found shape (18,), expected (6, 3)"),
    "one vector more": (swap(VECTORS, lambda a: np.hstack([a, a[:, :1]])), "found shape (6, 4), expected (6, 3)"),
    "no vector": (swap(VECTORS, lambda a: a[:, :0]), "found shape (6, 0), expected (6, 3)"),
    "vectors float16": (swap(VECTORS, lambda a: a.astype(np.float16)), "found dtype float16, expected float32"),
    "vectors missing": (lambda loaded: loaded.__delitem__(VECTORS), "tensor 'eigenvectors' is missing"),
    "a factor too": (packed, "unexpected tensor 'scale_tril_packed'"),
    "a factor instead": (only_packed, "tensor 'eigenvalues' is missing"),
    "index twice": (setter("subnetwork_indices", 1, 0), "strictly ascending"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_tensors_are_refused_though_their_hashes_are_right(folder: Path, case: str) -> None:
    change, message = WRONG[case]
    loaded = tensors(folder, POSTERIOR)
    change(loaded)
    put_tensors(folder, POSTERIOR, loaded)
    refusal(folder, POSTERIOR, message)


@pytest.mark.parametrize("column", [0, BLOCK_COLUMNS - 1, BLOCK_COLUMNS, BLOCK_COLUMNS + 1])
def test_every_pair_of_columns_is_looked_at(tmp_path: Path, column: int) -> None:
    """In more than one block: the last column leans towards another one, wherever that stands."""
    size = BLOCK_COLUMNS + 3
    vectors = np.eye(size, dtype=np.float32)
    vectors[column, -1] = 2 * ORTHONORMAL_TOLERANCE
    posterior = LowRankPosterior(np.ones(size, np.float32), vectors, LOW_RANK_PRIOR.used)
    spec = dataclasses.replace(FEATURE_SPEC, shape=(200,), feature_names=None)
    whole = write_linear(tmp_path / "bundle", outputs=3, spec=spec, size=size, rank=size)
    assert isinstance(read_bundle(whole.path).posterior, LowRankPosterior)
    rewrite(whole.path, tmp_path / "leaning", posterior=posterior)
    refusal(tmp_path / "leaning", POSTERIOR, "expected orthonormal columns")


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        (("posterior", "rank"), RANK - 1, "found shape (3,), expected (2,)"),
        (("posterior", "rank"), RANK + 1, "found shape (3,), expected (4,)"),
        (("posterior",), {"kind": "cholesky", "size": SIZE, "jitter": 0.0}, "'scale_tril_packed' is missing"),
    ],
    ids=["smaller rank", "larger rank", "cholesky"],
)
def test_tensors_that_the_manifest_contradicts_are_refused(
    folder: Path, place: tuple[str, ...], value: Any, message: str
) -> None:
    if place == ("posterior",):
        value = value | {"rank": None, "tolerance": None, "error": None}
    save_json(folder, replaced(load_json(folder), place, value))
    refusal(folder, POSTERIOR, message)


@pytest.mark.parametrize("used", [0.0, -1.0, 1e-31, 1e31])
def test_a_prior_precision_that_float32_cannot_divide_by_is_refused(folder: Path, used: float) -> None:
    save_json(folder, replaced(load_json(folder), ("prior", "used"), used))
    refusal(folder, MANIFEST, "prior.used: found")


def test_a_cholesky_bundle_cannot_pass_for_one_of_low_rank(classification: Synthetic, tmp_path: Path) -> None:
    folder = copy_bundle(classification.path, tmp_path / "cholesky")
    described = {"kind": "low-rank", "size": SIZE, "jitter": 0.0, "rank": 2, "tolerance": 0.1, "error": 0.0}
    save_json(folder, replaced(load_json(folder), ("posterior",), described))
    refusal(folder, POSTERIOR, "tensor 'eigenvalues' is missing")
    assert isinstance(read_bundle(classification.path).posterior, CholeskyPosterior)
