"""What the bundle guarantees, as the test data show it: sets, intervals and certified accuracy."""

from pathlib import Path

import numpy as np
import pytest
import torch

from demur.offline.evaluation.certificates import ACCURACIES, largest_certificate
from demur.offline.evaluation.evaluate import evaluate
from demur.offline.evaluation.measured import clopper_pearson
from demur.service.bundle import InputSpec, read_bundle
from demur.service.inference.predictor import Predictor
from demur.service.maths.certified import NotCertified, certify
from tests.support.bundles import write_linear
from tests.support.outcomes import draw_inputs, draw_targets, keeping_outcomes


def kept(folder: Path, task: str, tuning: int = 300, examples: int = 2000) -> Predictor:
    regression = task == "regression"
    spec = InputSpec(shape=(4,))
    source = write_linear(folder / "source", outputs=2 if regression else 3, spec=spec, regression=regression)
    return Predictor.load(keeping_outcomes(source.path, folder / "kept", examples, tuning), threads=1)


def drawn(predictor: Predictor, count: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    rng = np.random.default_rng(9)
    inputs = draw_inputs(predictor, rng, count)
    targets = draw_targets(predictor.predict(inputs), rng)
    if predictor.manifest.task == "regression":
        targets = targets.astype(np.float32)
    return list(zip(torch.as_tensor(inputs).split(64), torch.as_tensor(targets).split(64), strict=True))


def test_sets_hold_the_truth_as_often_as_counted(tmp_path: Path) -> None:
    predictor = kept(tmp_path, "classification")
    data = drawn(predictor, 500)
    found = evaluate(predictor, data).laplace
    inputs, y = (torch.cat(part).numpy() for part in zip(*data, strict=True))
    prediction = predictor.predict(inputs)
    assert predictor.decision.sets is not None
    assert prediction.probabilities is not None
    for level in (0.9, 0.95, 0.99):
        members = predictor.decision.sets.members(prediction.probabilities, level)
        holds = sum(bool(member[c]) for member, c in zip(members, y, strict=True))
        coverage = found[f"set_coverage_{100 * level:g}"]
        assert coverage.value == pytest.approx(holds / 500)
        assert coverage.interval == clopper_pearson(holds, 500)
        assert coverage.interval[1] >= level
        assert found[f"set_size_{100 * level:g}"].value == pytest.approx(members.sum() / 500)


def test_conformal_intervals_keep_their_level_where_gaussian_ones_do_not(tmp_path: Path) -> None:
    predictor = kept(tmp_path, "regression")
    found = evaluate(predictor, drawn(predictor, 500)).laplace
    for level in (90, 95, 99):
        interval = found[f"conformal_coverage_{level}"].interval
        assert interval is not None
        assert interval[1] >= level / 100
    assert found["coverage_95"].value < 0.93  # the noise has heavy tails


def test_a_level_beyond_the_residuals_is_left_out(tmp_path: Path) -> None:
    predictor = kept(tmp_path, "regression", examples=50)
    found = evaluate(predictor, drawn(predictor, 60)).laplace
    assert {"conformal_coverage_90", "conformal_coverage_95"} <= found.keys()
    assert "conformal_coverage_99" not in found


def test_the_largest_certificate_is_shown_with_what_it_accepts(tmp_path: Path) -> None:
    predictor = kept(tmp_path, "classification", tuning=2000)
    outcomes, data = read_bundle(predictor.path).calibration.outcomes, drawn(predictor, 500)
    certificate = largest_certificate(outcomes)
    found = evaluate(predictor, data).laplace
    if certificate is None:
        pytest.fail("nothing is certified: another bundle for this test")
    for accuracy in ACCURACIES[: ACCURACIES.index(certificate.accuracy)]:
        with pytest.raises(NotCertified):
            certify(outcomes.calibration, outcomes.tuning, accuracy, 0.95)  # type: ignore[union-attr, arg-type]
    inputs, y = (torch.cat(part).numpy() for part in zip(*data, strict=True))
    prediction = predictor.predict(inputs)
    assert prediction.probabilities is not None
    accepted = prediction.score <= certificate.threshold
    right = (prediction.probabilities.argmax(axis=1) == y)[accepted]
    assert found["certified_accuracy"].value == certificate.accuracy
    assert found["certified_accepted_share"].value == pytest.approx(accepted.mean())
    assert found["certified_accepted_accuracy"].value == pytest.approx(right.mean())


def test_nothing_is_certified_without_tuning_examples(tmp_path: Path) -> None:
    predictor = kept(tmp_path, "classification", tuning=0)
    outcomes = read_bundle(predictor.path).calibration.outcomes
    assert largest_certificate(outcomes) is None
    found = evaluate(predictor, drawn(predictor, 60)).laplace
    assert not [name for name in found if name.startswith("certified")]
