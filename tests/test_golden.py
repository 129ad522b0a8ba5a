"""Every golden bundle is served with the answers it was made with, for ever."""

import json
from pathlib import Path

import numpy as np
import pytest

from service import Predictor, read_bundle
from service.manifest import FORMAT_MAJOR

GOLDEN = Path(__file__).parent / "golden"
VERSIONS = sorted(path for path in GOLDEN.iterdir() if (path / "bundle").is_dir())


def test_there_is_one_for_this_format() -> None:
    assert f"v{FORMAT_MAJOR}" in [path.name for path in VERSIONS]


@pytest.mark.parametrize("folder", VERSIONS, ids=lambda path: path.name)
def test_answers_are_as_they_were(folder: Path) -> None:
    answers = json.loads((folder / "answers.json").read_text())
    predictor = Predictor.load(folder / "bundle")
    prediction = predictor.predict(np.asarray(answers["inputs"], np.float32))
    assert predictor.digest == answers["digest"]
    assert prediction.rejected.tolist() == answers["rejected"]
    for name in ("mean", "variance", "probabilities", "score", "p_value"):
        np.testing.assert_allclose(getattr(prediction, name), answers[name], rtol=1e-4, atol=1e-6, err_msg=name)


@pytest.mark.parametrize("folder", VERSIONS, ids=lambda path: path.name)
def test_the_specification_names_every_field(folder: Path) -> None:
    """service/BUNDLE.md is normative: nothing stands in a manifest that it does not name."""
    text = (Path(__file__).parent.parent / "service" / "BUNDLE.md").read_text()
    manifest = read_bundle(folder / "bundle").manifest
    for name in manifest.__dataclass_fields__:
        assert f"`{name}" in text, name
