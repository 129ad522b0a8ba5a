"""Several labels an example, from fit to file: chosen by the targets, by defaults; and what every tool makes of it."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from demur.offline import FitConfig, fit_bundle
from demur.offline.evaluation.evaluate import evaluate
from demur.offline.export.standalone.file import export_standalone
from demur.offline.fit import dry_run
from demur.offline.job import LABELS_NOTE
from demur.service.bundle import read_bundle
from demur.service.inference.onnx_runtime import onnxruntime
from demur.service.inference.predictor import Predictor
from demur.service.maths.outcomes import LabelOutcomes
from tests import reference

pytestmark = pytest.mark.usefixtures("short_fits")

NAMES = ["warm", "red", "round"]
TRUTH = torch.randn(6, 3, generator=torch.Generator().manual_seed(9))


def data(count: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(count, 6, generator=generator)
    noise = torch.randn(count, 3, generator=generator)
    return x, (x @ TRUTH + noise > 0).float()


def trained() -> nn.Module:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 20), nn.ReLU(), nn.Linear(20, 3))
    x, y = data(400, 0)
    optimiser = torch.optim.Adam(model.parameters(), 0.01)
    for _ in range(150):
        optimiser.zero_grad()
        nn.functional.binary_cross_entropy_with_logits(model(x), y).backward()
        optimiser.step()
    return model


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    said: list[str] = []
    path = fit_bundle(
        trained(),
        data(400, 0),
        tmp_path_factory.mktemp("labels") / "bundle",
        calibration_loader=data(300, 1),
        class_names=NAMES,
        config=FitConfig(),
        say=said.append,
    )
    assert said[0] == LABELS_NOTE
    return path


def test_the_targets_choose_the_task(fitted: Path) -> None:
    bundle = read_bundle(fitted)
    manifest, outcomes = bundle.manifest, bundle.calibration.outcomes
    assert (manifest.task, manifest.link, manifest.calibration.score) == ("multilabel", "probit-sigmoid", "surprise")
    assert isinstance(outcomes, LabelOutcomes)
    assert outcomes.set_scores.shape == (len(bundle.calibration.scores), 3)
    assert manifest.metrics["calibration_label_accuracy"] > 0.75
    assert manifest.metrics["calibration_error"] < 0.1
    assert (fitted / "report.html").exists()
    found = dry_run(trained(), data(400, 0), FitConfig(), calibration_loader=data(300, 1))
    assert found[0] == LABELS_NOTE


def test_probabilities_are_those_of_the_variances_that_are_served(fitted: Path) -> None:
    predictor, (x, _) = Predictor.load(fitted), data(50, 2)
    found, temperature = predictor.predict(x.numpy()), predictor.manifest.temperature
    assert found.probabilities is not None
    mean, variance = found.mean.astype(float), found.variance.astype(float)
    expected = reference.label_probabilities(mean, variance, temperature)
    np.testing.assert_allclose(found.probabilities, expected, rtol=1e-9)
    assert predictor.predict(30 * x.numpy()).rejected.mean() > 0.9
    assert found.rejected.mean() < 0.2


def test_evaluation_by_hand(fitted: Path) -> None:
    predictor, (x, y) = Predictor.load(fitted), data(200, 3)
    found = evaluate(predictor, (x, y), (20 * x, y))
    prediction, T = predictor.predict(x.numpy()), predictor.manifest.temperature  # noqa: N806
    p = prediction.probabilities
    assert p is not None
    right = [[(one >= 0.5) == bool(true) for one, true in zip(*pair, strict=True)] for pair in zip(p, y, strict=True)]
    likely = [
        reference.label_log_likelihood(m.astype(float), v.astype(float), true, T)
        for m, v, true in zip(prediction.mean, prediction.variance, y.numpy(), strict=True)
    ]
    assert predictor.decision.sets is not None
    members = predictor.decision.sets.members(p, 0.95)
    holds = [members[i, k, int(y[i, k])] for i in range(len(y)) for k in range(3)]
    confidence = [max(one, 1 - one) for row in p for one in row]
    expected = {
        "accuracy": np.mean([all(row) for row in right]),
        "label_accuracy": np.mean(right),
        "log_likelihood": np.mean(likely),
        "brier": np.mean(np.square(p - y.numpy())),
        "ece": reference.calibration_error(confidence, [one for row in right for one in row], 15),
        "set_coverage_95": np.mean(holds),
        "undecided_95": np.mean(members.all(axis=2)),
        "ood_reject_rate": predictor.predict(20 * x.numpy()).rejected.mean(),
    }
    for name, value in expected.items():
        assert found.laplace[name].value == pytest.approx(float(value), rel=1e-9), name
    assert found.plain["label_accuracy"].value == pytest.approx(expected["label_accuracy"])
    assert found.laplace["ood_auroc"].value > 0.95
    assert found.laplace["set_coverage_95"].value > 0.9
    each = [laplace for laplace, _ in found.by_output.values()]
    assert len(each) == len(right[0])
    assert sum(one["log_likelihood"].value for one in each) == pytest.approx(found.laplace["log_likelihood"].value)
    for name, total in {"accuracy": "label_accuracy", "set_coverage_95": "set_coverage_95", "brier": "brier"}.items():
        assert np.mean([one[name].value for one in each]) == pytest.approx(found.laplace[total].value), name


def test_the_one_file_answers_alike(fitted: Path, tmp_path: Path) -> None:
    export_standalone(fitted, tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    x = np.concatenate([data(20, 4)[0].numpy(), 100 * np.ones((1, 6), np.float32)])
    names = ["probabilities", "map_probabilities", "total", "epistemic", "score", "rejected"]
    found = dict(zip(names, session.run(names, {"inputs": x}), strict=True))
    expected = Predictor.load(fitted).predict(x)
    for name, values in found.items():
        np.testing.assert_allclose(values, getattr(expected, name), rtol=1e-5, atol=1e-9, err_msg=name)


@pytest.mark.slow
def test_one_bundle_answers_like_one_a_label(fitted: Path, tmp_path: Path) -> None:
    """The same network, its labels together and apart: log-likelihood of each label, sets and rejected shares."""
    *body, head = trained().children()
    (x, y), (held_x, held_y), (test_x, test_y) = data(400, 0), data(300, 1), data(4000, 2)
    inputs, truths, rows = test_x.numpy(), test_y.numpy().astype(int), np.arange(4000)
    together = Predictor.load(fitted)
    found = together.predict(inputs)
    members = together.decision.members(found)
    assert found.probabilities is not None
    for k in range(3):
        last = nn.Linear(20, 1)
        last.load_state_dict({name: value[k : k + 1] for name, value in head.state_dict().items()})
        alone = nn.Sequential(*body, last)
        config = FitConfig()
        held_out = held_x, held_y[:, k]
        fit_bundle(alone, (x, y[:, k]), tmp_path / f"{k}", calibration_loader=held_out, config=config)
        apart = Predictor.load(tmp_path / f"{k}")
        own = apart.predict(inputs)
        assert own.probabilities is not None
        pairs = (found.probabilities[:, k], own.probabilities[:, 1])
        likely = [np.log(np.where(truths[:, k] > 0, p, 1 - p)).mean() for p in pairs]
        held = [members[rows, k, truths[:, k]].mean(), apart.decision.members(own)[rows, truths[:, k]].mean()]
        assert likely[0] > likely[1] - 0.01
        assert min(held) > 0.92  # of 0.95, by 150 held-out examples
        assert max(found.rejected.mean(), own.rejected.mean()) < 0.1  # of 0.05
        assert together.predict(100 * inputs[:200]).rejected.all()
        assert apart.predict(100 * inputs[:200]).rejected.all()


def test_a_sigmoid_at_the_end_is_refused(tmp_path: Path) -> None:
    model = nn.Sequential(trained(), nn.Sigmoid())
    with pytest.raises(ValueError, match=r"found an output that is a probability \(the last operation is a sigmoid\)"):
        fit_bundle(model, data(100, 0), tmp_path / "bundle", calibration_loader=data(100, 1))


def test_targets_of_one_class_each_are_refused(tmp_path: Path) -> None:
    x, _ = data(100, 0)
    one_hot = torch.eye(3)[torch.arange(100) % 3]
    with pytest.raises(ValueError, match=r"expected class numbers \(100,\), as of targets\.argmax\(1\)"):
        fit_bundle(trained(), [(x, one_hot)], tmp_path / "bundle", calibration_loader=[(x, one_hot)])


OTHERS: dict[str, dict[str, Any]] = {
    "subnetwork alone": {"added_weights": False, "prior_precision": "budget"},
    "another score": {"score": "predictive_entropy"},
    "laplace": {"selection": "wasserstein-laplace", "subnetwork_size": 10},
    "swag": {"selection": "wasserstein-swag", "subnetwork_size": 10},
}


@pytest.mark.parametrize("options", OTHERS.values(), ids=OTHERS)
@pytest.mark.usefixtures("without_export")
def test_other_options_work_too(options: dict[str, Any], tmp_path: Path) -> None:
    config = FitConfig(likelihood="multilabel", **options)
    path = fit_bundle(trained(), data(400, 0), tmp_path / "bundle", calibration_loader=data(300, 1), config=config)
    assert read_bundle(path).manifest.task == "multilabel"
