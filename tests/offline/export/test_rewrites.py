"""offline/export/rewrites.py: what takes a function's place computes the same at its edges, too."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from demur.offline.export.rewrites import Rewrites, angle, atan2, logaddexp

EDGES = torch.tensor([0.0, 1e-30, 1e-8, 0.3, 1.0, 2.5, 87.0, 90.0, 104.0, 1e5, 1e19])
VALUES = torch.cat([EDGES, -EDGES])  # both zeros
PAIRS = [each.flatten() for each in torch.meshgrid(VALUES, VALUES, indexing="ij")]


@pytest.mark.parametrize(
    ("replacement", "function"),
    [(atan2, torch.atan2), (logaddexp, torch.logaddexp)],
)
def test_functions_of_two(replacement: Callable[..., Tensor], function: Callable[..., Tensor]) -> None:
    torch.testing.assert_close(replacement(*PAIRS), function(*PAIRS), rtol=1e-5, atol=1e-6)
    one, other = torch.tensor([0.5, -0.5, 3.0, -7.0, 0.1]), torch.tensor([-2.0, 0.2, 3.1, -0.3, 40.0])
    ours, theirs = (
        torch.autograd.functional.jacobian(lambda x, y, f=f: f(x, y).sum(), (one, other))
        for f in (replacement, function)
    )
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-6)


def test_arguments_may_be_named_as_torch_names_them() -> None:
    one, other = torch.tensor([1.0, -0.0]), torch.tensor([2.0, -3.0])
    with Rewrites():
        found = torch.atan2(input=one, other=other), one.atan2(other=other), torch.logaddexp(one, other=other)
    expected = torch.atan2(one, other), torch.atan2(one, other), torch.logaddexp(one, other)
    torch.testing.assert_close(found, expected)


def test_what_a_mask_leaves_out_is_left_out() -> None:
    """As in sums of paths, where minus infinity is the logarithm of none."""
    none = torch.tensor([-torch.inf, -torch.inf, 2.0])
    other = torch.tensor([-torch.inf, 1.0, -torch.inf])
    torch.testing.assert_close(logaddexp(none, other), torch.logaddexp(none, other))


def test_the_angle_of_real_and_complex_numbers() -> None:
    torch.testing.assert_close(angle(VALUES), torch.angle(VALUES))
    complex_values = torch.complex(*PAIRS)
    torch.testing.assert_close(angle(complex_values), torch.angle(complex_values))
