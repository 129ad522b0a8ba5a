"""Every golden bundle is served with the answers that it was made with."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from demur.service import Predictor
from demur.service.bundle import MANIFEST
from demur.service.inference.predictor import Prediction
from tests.support.bundles import rewrite

GOLDEN = Path(__file__).parent / "golden"
BUNDLES = sorted(path for path in GOLDEN.iterdir() if (path / "bundle").is_dir())
FREE_KEYS = ("options", "metrics", "libraries", "files")  # objects whose keys the format does not fix

each_bundle = pytest.mark.parametrize("folder", BUNDLES, ids=lambda path: path.name)


@each_bundle
def test_answers_are_as_they_were(folder: Path) -> None:
    answers = json.loads((folder / "answers.json").read_text())
    predictor = Predictor.load(folder / "bundle")
    assert predictor.digest == answers["digest"]
    inputs = np.asarray(answers["inputs"], np.float32)
    check_answers(predictor.predict(inputs), answers)
    assert ("sets" in answers) == (predictor.decision.sets is not None)
    if predictor.decision.sets is not None:
        members = predictor.decision.sets.members(np.asarray(answers["probabilities"]), 0.9)
        assert members.tolist() == answers["sets"]


def check_answers(prediction: Prediction, answers: dict[str, Any]) -> None:
    assert prediction.rejected.tolist() == answers["rejected"]
    for name in ("mean", "variance", "probabilities", "score", "p_value"):
        np.testing.assert_allclose(getattr(prediction, name), answers[name], rtol=1e-4, atol=1e-6, err_msg=name)


@each_bundle
def test_written_anew_it_answers_the_same(folder: Path, tmp_path: Path) -> None:
    again = rewrite(folder / "bundle", tmp_path / "again")
    answers = json.loads((folder / "answers.json").read_text())
    old, new = (Predictor.load(path, threads=1) for path in (folder / "bundle", again))
    inputs = np.asarray(answers["inputs"], np.float32)
    np.testing.assert_array_equal(new.predict(inputs).variance, old.predict(inputs).variance)
    check_answers(new.predict(inputs), answers)


@each_bundle
def test_the_specification_names_every_field(folder: Path) -> None:
    """service/BUNDLE.md is normative: nothing stands in a manifest that it does not name."""
    text = (Path(__file__).parent.parent / "service" / "BUNDLE.md").read_text()
    for place in field_names(json.loads((folder / "bundle" / MANIFEST).read_text())):
        name = place.rpartition(".")[2]
        assert f"`{name}`" in text or f"`{place}`" in text, place


def field_names(value: Any, prefix: str = "") -> set[str]:
    """The names of all fields, with dots between the levels."""
    if isinstance(value, list):
        return set().union(*(field_names(item, prefix) for item in value))
    if not isinstance(value, dict):
        return set()
    found = {f"{prefix}{name}" for name in value}
    inner = (field_names(item, f"{prefix}{name}.") for name, item in value.items() if name not in FREE_KEYS)
    return found.union(*inner)
