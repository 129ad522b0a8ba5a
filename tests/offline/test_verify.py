"""offline/verify.py: what is served is compared with the truth, and nothing far from it passes."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from offline.verify import LOOSEST, ROUNDING_FACTOR, TOLERANCE, Truth, VerificationError, verify
from tests.support_bundles import FEATURE_SPEC, write_linear

ROUNDING = {"mean": 0.0, "jacobian": 0.0, "variance": 0.0}


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Truth]:
    synthetic = write_linear(tmp_path_factory.mktemp("verify") / "bundle", outputs=3, spec=FEATURE_SPEC)
    inputs = np.random.default_rng(0).normal(size=(6, 4)).astype(np.float32)
    truth = Truth(inputs, synthetic.mean(inputs), synthetic.jacobian(inputs), synthetic.variance(inputs))
    return synthetic.path, truth


def never() -> dict[str, float]:
    raise AssertionError("asked for without need")


def test_what_agrees_passes_and_its_errors_are_told(case: tuple[Path, Truth]) -> None:
    verification = verify(*case, never)
    assert (verification.examples, verification.tolerance) == (6, TOLERANCE)
    assert max(verification.mean_error, verification.jacobian_error, verification.variance_error) < 1e-5


@pytest.mark.parametrize("name", ["mean", "jacobian", "variance"])
def test_what_differs_is_refused_by_name(case: tuple[Path, Truth], name: str) -> None:
    folder, truth = case
    changed = replace(truth, **{name: getattr(truth, name) * 1.001})
    with pytest.raises(VerificationError, match=rf"the {name} served differs .* by 1\.0e-03 .* at most 1e-04"):
        verify(folder, changed)


def test_no_nearer_than_torch_in_single_precision_is_asked_for(case: tuple[Path, Truth]) -> None:
    folder, truth = case
    changed = replace(truth, jacobian=truth.jacobian * 1.001)
    near = {**ROUNDING, "jacobian": 1.2e-3 / ROUNDING_FACTOR}
    assert verify(folder, changed, lambda: near).tolerance == pytest.approx(1.2e-3)
    with pytest.raises(VerificationError, match="jacobian"):
        verify(folder, changed, lambda: {**ROUNDING, "mean": 1.0})
    with pytest.raises(VerificationError, match="jacobian"):
        verify(folder, changed, lambda: {**ROUNDING, "jacobian": 0.5e-3 / ROUNDING_FACTOR})


def test_there_is_an_end_to_it(case: tuple[Path, Truth]) -> None:
    folder, truth = case
    changed = replace(truth, jacobian=truth.jacobian * (1 + 2 * LOOSEST))
    with pytest.raises(VerificationError, match="at most 1e-02"):
        verify(folder, changed, lambda: {**ROUNDING, "jacobian": 1.0})
    with pytest.raises(VerificationError):
        verify(folder, replace(truth, mean=truth.mean * np.nan), lambda: {**ROUNDING, "mean": np.inf})
