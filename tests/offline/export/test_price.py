"""offline/export/price.py: how prices follow from seconds."""

import pytest

from demur.offline.export.price import Timing, published


def test_passes_are_a_ratio() -> None:
    one, many = Timing(1, 4e-4, 2e-4), Timing(16, 4e-5, 1e-5)
    assert [(each.batch, each.forward_passes) for each in published([one, many])] == [(1, 2.0), (16, pytest.approx(4))]
