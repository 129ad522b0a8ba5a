"""What a model card says of the variances that a bundle computes."""

from typing import get_args

import pytest

from probity.card import computed_variances
from service.bundle import ComputedVariances, FillEffect

KINDS = get_args(ComputedVariances.__annotations__["kind"])


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_described(kind: str) -> None:
    effect = None if kind == "differences" else FillEffect(50, 0.0125, -0.1, 0.02)
    text = computed_variances(ComputedVariances(kind, 2, effect))  # type: ignore[arg-type]
    if effect is None:
        assert text.startswith("of the differences of all other logits from the largest one")
        return
    assert "Against those of all classes, on 50 held-out examples: probabilities differ by 0.013" in text
    assert text.endswith("2.0 % of the decisions")
