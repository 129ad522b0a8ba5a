"""A fit with another score than the default one, up to the service's answer."""

from pathlib import Path
from typing import get_args

import numpy as np
import pytest

from demur.offline import FitConfig, fit_bundle
from demur.offline.config import OptionError
from demur.service.format.manifest import Task
from demur.service.inference.predictor import Predictor
from demur.service.maths.scores import MISTAKES, SCORES
from tests.support.small_fit import CONFIG, batches, network

pytestmark = pytest.mark.usefixtures("short_fits")

FAR = 40 * np.ones((1, 4), np.float32)


def test_a_single_score(tmp_path: Path) -> None:
    config = CONFIG.model_copy(update={"score": "predictive_entropy"})
    out = fit_bundle(network(), batches(60), tmp_path / "b", calibration_loader=batches(120, seed=1), config=config)
    predictor = Predictor.load(out)
    calibration = predictor.manifest.calibration
    assert (calibration.score, calibration.parts) == ("predictive_entropy", None)
    assert predictor.predict(FAR).rejected.shape == (1,)


def test_scores_that_a_config_refuses() -> None:
    with pytest.raises(OptionError, match="found 'surprise' for a regression, expected one of default, epistemic_std"):
        FitConfig(likelihood="regression", score="surprise")
    with pytest.raises(OptionError, match="found 'epistemic_std' for a classification"):
        FitConfig(score="epistemic_std")


@pytest.mark.parametrize("task", get_args(Task))
@pytest.mark.parametrize("score", ["fused", "auto", "energy", "max_logit", "energie", "inverted", "", None, 1])
def test_an_unknown_score_is_told_the_known_ones(task: Task, score: object) -> None:
    with pytest.raises(OptionError) as caught:
        FitConfig(**{"likelihood": task, "score": score})  # type: ignore[arg-type]
    message = str(caught.value)
    assert message.startswith(f"score: found {score!r}")
    assert all(repr(name) in message for name in ("default", "surprise", *SCORES.keys() - MISTAKES.keys()))
