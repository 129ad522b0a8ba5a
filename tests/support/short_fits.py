"""Fixtures that spare fits what they repeat without need: import them in a conftest.py."""

import functools
import gc
from collections.abc import Iterator
from typing import Any

import pytest
from torch.onnx._internal.exporter import _registration

import demur.offline.fit
from demur.offline.report import figures
from tests.support.small_fit import skip_export


@pytest.fixture(scope="session", autouse=True)
def operators_read_once() -> Iterator[None]:
    """For each export torch.onnx parses the source of its 500 operators: 0.4 of the 1.4 seconds of a small one.

    They are the same each time, and an export only looks them up. The tests make hundreds. Nor is there garbage among
    torch's million objects, which each collection would otherwise go through.
    """
    registry: Any = _registration.ONNXRegistry
    registry.from_torchlib()  # imports most of torch
    gc.collect()
    gc.freeze()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(registry, "from_torchlib", staticmethod(functools.cache(registry.from_torchlib)))
        yield


@pytest.fixture(scope="module")
def short_fits() -> Iterator[None]:
    """Fits without the trial export, which takes as long as the export itself and finds what cannot be served, and with
    a report without pictures: half of a small fit's time.

    For modules whose fits are known to be served. tests/offline/estimate, test_end_to_end.py and the recipes' tests fit
    without this; tests/offline/report looks at the pictures.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(demur.offline.fit, "check_whole_way", lambda *_: None)
        patch.setattr(figures, "render", lambda *_: "data:,")
        yield


@pytest.fixture
def without_export(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fit that publishes a stub of a graph: for tests that read the manifest alone."""
    skip_export(monkeypatch)
