"""Of the candidates, the bundle's own choice: accepted ones, every label first."""

from pathlib import Path

import numpy as np
import pytest

from demur.offline.data.typical_rows import MOST_ROWS
from demur.offline.publish.exporter import usual_rows
from demur.service.inference.predictor import Predictor
from tests.support.bundles import FEATURE_SPEC, write_linear


@pytest.mark.parametrize("regression", [False, True])
def test_accepted_rows_are_chosen(tmp_path: Path, regression: bool) -> None:
    outputs = 2 if regression else 3
    bundle = write_linear(tmp_path / "bundle", outputs=outputs, spec=FEATURE_SPEC, regression=regression)
    drawn = np.random.default_rng(0).normal(size=(60, 4)).round(2).tolist()
    candidates = tuple(map(tuple, drawn))
    predictor = Predictor.load(bundle.path)
    chosen = usual_rows(candidates, predictor)
    assert len(chosen) <= MOST_ROWS
    assert set(chosen) < set(candidates)
    found, every = (predictor.predict(np.array(rows, np.float32)) for rows in (chosen, candidates))
    assert not found.rejected.any()
    assert every.rejected.any()
    if regression:
        assert (np.diff(found.p_value) <= 0).all()
    else:
        assert every.labels is not None
        assert found.labels is not None
        accepted = every.labels[~every.rejected]
        assert len(set(found.labels[: len(set(accepted))])) == len(set(accepted))


def test_without_candidates_there_are_none(tmp_path: Path) -> None:
    bundle = write_linear(tmp_path / "bundle", outputs=3, spec=FEATURE_SPEC)
    assert usual_rows((), Predictor.load(bundle.path)) == ()
