"""A fit with a cascade, through the bundle: what is served, against float64 and against the full stage."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from offline import FitConfig, fit_bundle
from service import Predictor, read_bundle
from service.bundle import read_manifest
from tests import reference
from tests.support.small_fit import CONFIG

pytestmark = [pytest.mark.filterwarnings("ignore::FutureWarning:copyreg"), pytest.mark.usefixtures("without_trial")]

Batches = list[tuple[Tensor, Tensor]]


def network(outputs: int = 3) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, outputs))


def batches(count: int, seed: int, regression: bool = False) -> Batches:
    """Classes that overlap a little, which the network is trained on nowhere: it is drawn, and its outputs decide."""
    generator = torch.Generator().manual_seed(seed)
    inputs = 2 * torch.randn(count, 4, generator=generator)
    with torch.no_grad():
        outputs = 3 * network()(inputs)
    targets: Tensor = torch.distributions.Categorical(logits=outputs).sample() if not regression else outputs
    return list(zip(inputs.split(64), targets.split(64), strict=True))


def config(**changes: Any) -> FitConfig:
    options = {"subnetwork_size": 60, "cascade": True, "prior_precision": "budget", **changes}
    return CONFIG.model_copy(update=options)


def fit(out: Path, model: nn.Module | None = None, held_out: int = 600, **changes: Any) -> Path:
    regression = changes.get("likelihood") == "regression"
    train, kept = batches(200, 1, regression), batches(held_out, 2, regression)
    return fit_bundle(model or network(), train, out, calibration_loader=kept, config=config(**changes))


@pytest.fixture(scope="module", params=["classification", "regression"])
def bundle(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fit(tmp_path_factory.mktemp("cascade") / "bundle", likelihood=request.param)


def joined(pairs: Batches) -> np.ndarray:
    return torch.cat([inputs for inputs, _ in pairs]).numpy()


def test_the_first_stage_is_a_posterior_over_the_head(bundle: Path) -> None:
    manifest = read_manifest(bundle)[0]
    cascade = manifest.cascade
    assert cascade is not None
    assert cascade.size == 27  # all of the head
    head, task = np.arange(4 * 8 + 8 + 64 + 8, manifest.parameter_count), manifest.task
    train = torch.cat([inputs for inputs, _ in batches(200, 1, task == "regression")])
    mean, jacobian = reference.full_jacobian(network(), train)
    precision = reference.posterior_precision(
        mean, jacobian[:, :, head], task, cascade.prior.used, manifest.sigma_noise
    )
    inputs = torch.as_tensor(joined(batches(5, 3)))
    expected = reference.variance(reference.full_jacobian(network(), inputs)[1][:, :, head], precision)
    stage = Predictor.load(bundle, cascade=True).first_stage
    assert stage is not None
    np.testing.assert_allclose(stage.mean_and_variance(inputs.numpy())[1], expected, rtol=1e-3)
    assert cascade.verification is not None
    assert cascade.verification.variance_error <= 1e-4


def test_the_rule_and_the_agreement_are_those_of_the_conformal_half(bundle: Path) -> None:
    """Measured again with the serving code, on the examples that set the threshold."""
    full, found = Predictor.load(bundle), Predictor.load(bundle, cascade=True)
    assert found.first_stage is not None
    held_out = joined(batches(600, 2, full.manifest.task == "regression"))
    order = np.random.default_rng(CONFIG.seed).permutation(600)
    conformal = held_out[order[300:]]
    np.testing.assert_allclose(np.sort(found.predict(conformal).score), found.rule.scores, rtol=1e-3)
    cascade, score = found.manifest.cascade, full.predict(conformal).score
    assert cascade is not None
    prediction = found.predict(conformal)
    decided = prediction.by_first_stage
    assert decided is not None
    agreement = cascade.agreement
    assert agreement.examples == 300
    assert agreement.decided == pytest.approx(decided.sum(), abs=1)
    same = (prediction.score > cascade.threshold) == (score > cascade.threshold)
    assert agreement.agreement == pytest.approx(same[decided].mean(), abs=0.01)
    assert agreement.lower_bound < (agreement.agreement or 0)
    assert agreement.decided_share > 0.3
    assert (agreement.agreement or 0) > 0.95
    changed = prediction.rejected != full.predict(conformal).rejected
    assert agreement.verdicts_changed == pytest.approx(changed.mean(), abs=0.01)


def test_the_false_reject_rate_of_the_cascade_as_a_whole(bundle: Path) -> None:
    """On new examples, exchangeable with those that set the threshold."""
    found = Predictor.load(bundle, cascade=True)
    new = joined(batches(4000, 9, found.manifest.task == "regression"))
    assert 0.06 < found.predict(new).rejected.mean() < found.rule.rate_bound(0.999)


def test_verdicts_are_those_of_the_full_stage(bundle: Path) -> None:
    """On ordinary examples and far away, where the first stage decides."""
    full, found = Predictor.load(bundle), Predictor.load(bundle, cascade=True)
    for scale in (1.0, 4.0):
        inputs = (scale * joined(batches(1000, 11))).astype(np.float32)
        one, other = found.predict(inputs), full.predict(inputs)
        assert (one.rejected == other.rejected).mean() > 0.95


def test_an_evaluation_and_a_plain_predictor_take_the_full_stage(bundle: Path) -> None:
    assert Predictor.load(bundle).first_stage is None


def test_the_same_fit_without_the_cascade_answers_the_same(bundle: Path, tmp_path: Path) -> None:
    manifest = read_manifest(bundle)[0]
    plain = fit(tmp_path / "plain", likelihood=manifest.task, cascade=False)
    assert read_bundle(plain).cascade is None
    np.testing.assert_array_equal(read_bundle(plain).calibration.scores, read_bundle(bundle).calibration.scores)
    assert read_bundle(plain).model == read_bundle(bundle).model


def test_the_temperature_is_that_of_the_full_stage(tmp_path: Path) -> None:
    found = Predictor.load(fit(tmp_path / "bundle", temperature="fit"), cascade=True)
    assert found.manifest.temperature != 1.0
    assert found.manifest.cascade is not None
    assert found.manifest.cascade.agreement.decided > 0


def test_same_seed_same_digest(tmp_path: Path) -> None:
    digests = {read_manifest(fit(tmp_path / name))[1] for name in ("one", "two")}
    assert len(digests) == 1


def test_a_fixed_prior_and_a_low_rank(tmp_path: Path) -> None:
    path = fit(tmp_path / "bundle", prior_precision=2.0, posterior="low-rank", posterior_tolerance=0.5)
    cascade = read_manifest(path)[0].cascade
    assert cascade is not None
    assert cascade.prior.precision == 2.0


def test_a_network_without_a_linear_head_is_refused(tmp_path: Path) -> None:
    model = nn.Sequential(network(), nn.Tanh())
    with pytest.raises(ValueError, match="cascade: found a network that does not end in a Linear layer"):
        fit(tmp_path / "bundle", model)


def test_weights_that_are_in_the_head_already_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"cascade: found all 27 chosen weights in the linear head '4' already"):
        fit(tmp_path / "bundle", selection="last-layer")


def test_too_few_examples_that_tune_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="found 8 held-out examples that tune, expected at least 9"):
        fit(tmp_path / "bundle", held_out=17)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("share", [0.0, 1.5])
def test_the_agreement_asked_for_is_a_share(share: float) -> None:
    with pytest.raises(ValueError, match="cascade_agreement"):
        FitConfig(cascade_agreement=share)
