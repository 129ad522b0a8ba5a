"""offline/export/rewrites.py: what takes a function's place computes the same at its edges, too."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from demur.offline.export.rewrites import Rewrites, atan2, floor_divide, logaddexp, remainder

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


TENTHS = torch.arange(-400, 401) / 10


@pytest.mark.parametrize("divisor", [0.1, 0.7, -0.3, 1.0, 7.0, torch.inf, TENTHS[1:] + 0.05])
@pytest.mark.parametrize(
    ("replacement", "function"), [(remainder, torch.remainder), (floor_divide, torch.floor_divide)]
)
def test_remainders_and_quotients_at_multiples(
    replacement: Callable[..., Tensor], function: Callable[..., Tensor], divisor: float | Tensor
) -> None:
    values = TENTHS[1:]
    torch.testing.assert_close(replacement(values, divisor), function(values, divisor), rtol=0, atol=0, equal_nan=True)
    whole = torch.arange(-9, 9)
    torch.testing.assert_close(replacement(whole, 4), function(whole, 4))


def test_small_exponents_keep_their_digits() -> None:
    values = torch.cat([VALUES, torch.linspace(-3, 3, 101)])
    with Rewrites():
        found = torch.expm1(values), values[1:].expm1()
    torch.testing.assert_close(found, (torch.expm1(values), torch.expm1(values[1:])), rtol=2e-6, atol=0)


def test_operators_are_replaced_too() -> None:
    def all_of(x: Tensor) -> list[Tensor]:
        return [x % 0.7, x // 0.7, x.remainder(0.7), x.floor_divide(0.7), torch.remainder(x, 0.7), 7 % x, 7 // x]

    with Rewrites():
        found = all_of(TENTHS[401:])
    torch.testing.assert_close(found, all_of(TENTHS[401:]), rtol=0, atol=0)


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
