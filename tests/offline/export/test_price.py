"""offline/export/price.py: how prices follow from seconds."""

import pytest

from probity.offline.export.price import LEAST_SECONDS, Price, Timing, published


def test_passes_are_a_ratio_and_a_fast_network_weighs_as_a_slower_one() -> None:
    slow, fast = Timing(1, 4 * LEAST_SECONDS, 2 * LEAST_SECONDS), Timing(16, 0.4 * LEAST_SECONDS, 0.1 * LEAST_SECONDS)
    assert (slow.passes, slow.weighed) == (2.0, 2.0)
    assert fast.passes == pytest.approx(4.0)
    assert fast.weighed == pytest.approx(1.3)
    both = Price.of([slow, fast])
    assert both.passes == pytest.approx(4.0)
    assert both.weighed == 2.0
    assert [(one.batch, one.forward_passes) for one in published([slow, fast])] == [(1, 2.0), (16, pytest.approx(4.0))]
