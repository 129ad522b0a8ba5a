"""Two tiers of tests: `make test` runs those without the marker `slow`, `make test-all` every one (CONTRIBUTING.md)."""

from collections.abc import Collection, Iterable
from typing import Any

import pytest


def quick_among(values: Iterable[str], quick: Collection[str]) -> list[Any]:
    """Parameters for every value, marked `slow` unless it is one of `quick`."""
    every = list(values)
    assert set(quick) <= set(every), f"found {set(quick) - set(every)}, expected only names that are tested"
    return [value if value in quick else pytest.param(value, marks=pytest.mark.slow) for value in every]
