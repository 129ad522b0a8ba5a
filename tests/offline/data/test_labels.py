"""The likelihood of several labels: targets, curvature against autograd, and which targets choose it."""

import math

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from demur.offline.config import FitConfig
from demur.offline.data.likelihood import Multilabel, are_labels, likelihood_of
from tests import reference

LABELS = torch.tensor([[0, 1, 1], [0, 0, 0], [1, 1, 0]])


@pytest.mark.parametrize("dtype", [torch.int64, torch.int8, torch.bool, torch.float32, torch.float64])
def test_zeros_and_ones_of_any_type(dtype: torch.dtype) -> None:
    found = Multilabel(3).check_targets(LABELS.to(dtype), 3)
    assert found.dtype == torch.get_default_dtype()
    assert found.tolist() == LABELS.tolist()


def test_one_label_may_be_flat() -> None:
    assert Multilabel(1).check_targets(torch.tensor([0, 1]), 2).tolist() == [[0], [1]]


@pytest.mark.parametrize(
    ("targets", "message"),
    [
        (torch.tensor([0, 1, 2]), r"found shape \(3,\), expected \(3, 3\): 0 or 1 for each label"),
        (2 * LABELS, "found other numbers than 0 and 1, expected 1 for each label that an example has"),
        (0.5 * LABELS, "found other numbers than 0 and 1"),
        (LABELS * math.nan, "found other numbers than 0 and 1"),
        (LABELS * 1j, "found other numbers than 0 and 1"),
    ],
)
def test_other_targets_are_refused(targets: torch.Tensor, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Multilabel(3).check_targets(targets, 3)


def test_the_curvature_is_that_of_the_loss() -> None:
    """C C^T is the Hessian of the sum of binary cross-entropies, from its definition by automatic differentiation."""
    mean = torch.tensor([[0.3, -1.2, 4.0], [-60.0, 0.0, 60.0]], dtype=torch.float64)
    likelihood = Multilabel(3)
    for f in mean:
        hessian = torch.autograd.functional.hessian(
            lambda g: F.binary_cross_entropy_with_logits(g, LABELS[0].double(), reduction="sum"), f
        )
        root = likelihood.sqrt_hessian_product(torch.eye(3, dtype=torch.float64)[None], f[None])[0]
        torch.testing.assert_close(root.T @ root, hessian, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(root.T @ root, reference.output_hessian(f.numpy(), "multilabel", None), atol=1e-12)
        z = torch.tensor([[1.0, -2.0, 0.5]], dtype=torch.float64)
        torch.testing.assert_close(likelihood.sqrt_hessian_transpose_product(z, f[None])[0], root.T @ z[0])
    assert float(likelihood.sqrt_hessian_product(torch.ones(1, 3, 1), mean[1:].float())[0, 2, 0]) > 0  # p rounds to 1


def test_loss_and_right_answers() -> None:
    mean = torch.tensor([[-1.0, 2.0, 3.0], [-1.0, 0.5, -1.0], [1.0, 1.0, -1.0]])
    targets = LABELS.float()
    likelihood = likelihood_of("multilabel", 3, temperature=1.0)
    each = [
        reference.label_log_likelihood(f.numpy(), 0 * f.numpy(), y) for f, y in zip(mean, LABELS.tolist(), strict=True)
    ]
    assert float(likelihood.training_loss(mean, targets)) == pytest.approx(-sum(each) / 3)
    found = likelihood.log_likelihood(mean.numpy(), np.zeros((3, 3)), LABELS.numpy())
    np.testing.assert_allclose(found, each, rtol=1e-6)
    assert isinstance(likelihood, Multilabel)
    assert likelihood.correct(mean, targets).tolist() == [True, False, True]
    assert likelihood.with_shared_divisor() == likelihood


def test_which_targets_are_labels() -> None:
    assert are_labels(LABELS, 3, 3)
    assert are_labels(LABELS.bool(), 3, 3)
    assert not are_labels(2 * LABELS, 3, 3)
    assert not are_labels(torch.tensor([0, 1, 1]), 3, 3)
    assert not are_labels(torch.tensor([[0], [1], [1]]), 3, 1)
    assert not are_labels(LABELS, 3, 4)
    with pytest.raises(
        ValueError, match=r"found a single 1 in each row .* targets\.argmax\(1\); .* likelihood='multilabel'"
    ):
        are_labels(torch.eye(3), 3, 3)


def test_what_labels_have_no_use_for() -> None:
    expected = "score: found 'epistemic_std' for a multilabel, expected one of default, predictive"
    with pytest.raises(ValueError, match=expected):
        FitConfig(likelihood="multilabel", score="epistemic_std")
