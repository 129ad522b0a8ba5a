"""Through the bundle: what the service answers, against the explicit float64 computation, to 1e-4 relative."""

import copy
from pathlib import Path

import numpy as np
import pytest
import torch

import demur.offline.job
from demur.offline import FitConfig, fit_bundle
from demur.offline.export.graph import export_variance
from demur.offline.export.verify import VerificationError
from demur.offline.selection.context import SelectionContext
from demur.service import Predictor, read_bundle
from demur.service.bundle import read_manifest
from tests import reference
from tests.support.cases import CASES, Case
from tests.support.tiers import quick_among

pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning:copyreg")

TRAIN, HELD_OUT, TEST = 40, 60, 5
PRIOR, SIGMA = 20.0, 0.8
BY_NAME = {case.name: case for case in CASES}
# Every likelihood, number of outputs and kind of layer; not every combination, since each one is exported to ONNX.
SERVED = (
    "mlp-classification-2",
    "mlp-multilabel-3",
    "mlp-regression-1",
    "mlp-regression-10",
    "cnn-classification-10",
    "cnn-regression-2",
    "batchnorm-cnn-classification-2",
    "batchnorm-cnn-regression-1",
)


def fit(case: Case, out: Path, **changes: object) -> Path:
    options = {
        "likelihood": case.likelihood,
        "subnetwork_size": 0.4,
        "selection": "random",
        "prior_precision": PRIOR,
        "sigma_noise": SIGMA,
        "seed": 1,
        "added_weights": False,
        "temperature": 1.0,
        **changes,
    }
    return fit_bundle(
        case.model(),
        case.batches(TRAIN, 16),
        out,
        calibration_loader=case.batches(HELD_OUT, 25, seed=1),
        config=FitConfig.model_validate(options),
    )


def expected_variance(case: Case, indices: np.ndarray, used_prior: float, inputs: torch.Tensor) -> np.ndarray:
    sigma = SIGMA if case.likelihood == "regression" else None
    mean, jacobian = reference.full_jacobian(case.model(), case.data(TRAIN)[0])
    precision = reference.posterior_precision(mean, jacobian[:, :, indices], case.likelihood, used_prior, sigma)
    return reference.variance(reference.full_jacobian(case.model(), inputs)[1][:, :, indices], precision)


@pytest.mark.parametrize("name", quick_among(SERVED, {"mlp-classification-2", "mlp-multilabel-3", "cnn-regression-2"}))
def test_served_answers_equal_the_oracle(name: str, tmp_path: Path) -> None:
    case = BY_NAME[name]
    predictor = Predictor.load(fit(case, tmp_path / "bundle"))
    bundle = read_bundle(tmp_path / "bundle")
    inputs = case.data(TEST, seed=2)[0]
    size, total = bundle.manifest.subnetwork_size, bundle.manifest.parameter_count
    assert bundle.manifest.prior.used == pytest.approx(PRIOR * size / total)

    truth = expected_variance(case, bundle.subnetwork_indices, PRIOR * size / total, inputs)
    mean = reference.full_jacobian(case.model(), inputs)[0]
    prediction = predictor.predict(inputs.numpy())
    np.testing.assert_allclose(prediction.mean, mean, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(prediction.variance, truth, rtol=1e-4, atol=1e-6 * truth.max())
    if case.likelihood == "multilabel":
        expected = reference.label_probabilities(mean, truth)
        assert prediction.probabilities is not None
        np.testing.assert_allclose(prediction.probabilities, expected, rtol=1e-4, atol=1e-7)
        entropies = [sum(reference.entropy([p, 1 - p]) for p in row) for row in expected]
        np.testing.assert_allclose(prediction.score, entropies, rtol=1e-4)
    elif case.likelihood == "classification":
        expected = reference.probit_probabilities(mean, truth)
        assert prediction.probabilities is not None
        np.testing.assert_allclose(prediction.probabilities, expected, rtol=1e-4, atol=1e-7)
        entropies = [reference.entropy(p) for p in expected]
        np.testing.assert_allclose(prediction.score, entropies, rtol=1e-4)
    else:
        assert prediction.std is not None
        np.testing.assert_allclose(prediction.std, np.sqrt(truth + SIGMA**2), rtol=1e-4)
        np.testing.assert_allclose(prediction.score, np.sqrt(truth.mean(axis=1)), rtol=1e-4)

    for i in range(TEST):  # a batch of one equals a batch of n
        alone = predictor.predict(inputs[i : i + 1].numpy())
        np.testing.assert_allclose(alone.variance[0], prediction.variance[i], rtol=1e-4, atol=1e-6 * truth.max())
        assert alone.rejected[0] == prediction.rejected[i]
    verification = bundle.manifest.verification
    assert verification is not None
    assert verification.variance_error <= 1e-4


@pytest.mark.slow
@pytest.mark.parametrize("name", ["cnn-regression-1"])
def test_all_weights_equal_full_laplace(name: str, tmp_path: Path) -> None:
    case = BY_NAME[name]
    predictor = Predictor.load(fit(case, tmp_path / "bundle", subnetwork_size=1.0))
    inputs = case.data(TEST, seed=2)[0]
    everything = np.arange(predictor.manifest.parameter_count)
    assert predictor.manifest.subnetwork_size == len(everything)
    assert predictor.manifest.prior.used == PRIOR  # lambda * S / D = lambda
    truth = expected_variance(case, everything, PRIOR, inputs)
    np.testing.assert_allclose(predictor.predict(inputs.numpy()).variance, truth, rtol=1e-4, atol=1e-6 * truth.max())


def test_same_seed_same_digest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also with a loader that shuffles by the global generator, which the fit seeds and gives back; and whatever the
    machine has free."""
    case = BY_NAME["mlp-classification-2"]
    dataset = torch.utils.data.TensorDataset(*case.data(TRAIN))
    monkeypatch.setattr(demur.offline.fit, "check_whole_way", lambda *_: None)
    digests = []
    for attempt in range(2):
        torch.manual_seed(attempt)
        monkeypatch.setattr(demur.offline.job, "default_budget", lambda _, gibibytes=4 + attempt: gibibytes * 2**30)
        state = torch.get_rng_state()
        fit_bundle(
            case.model(),
            torch.utils.data.DataLoader(dataset, batch_size=8, shuffle=True),
            tmp_path / "bundle",
            calibration_loader=case.batches(HELD_OUT, 25, seed=1),
            config=FitConfig(subnetwork_size=20, selection="wasserstein-swag", seed=3),
        )
        assert torch.equal(torch.get_rng_state(), state)
        digests.append(read_bundle(tmp_path / "bundle").digest)
    assert digests[0] == digests[1]


def every_other(context: SelectionContext, start: int = 0) -> torch.Tensor:
    return context.candidate_weights[start::2][: context.size]


def test_a_function_chooses_the_weights_of_a_bundle(tmp_path: Path) -> None:
    case = BY_NAME["mlp-regression-1"]
    path = fit(case, tmp_path / "bundle", selection=every_other, selection_options={"start": 1}, subnetwork_size=9)
    predictor, bundle = Predictor.load(path), read_bundle(path)
    assert bundle.manifest.selection.strategy == "every_other()"
    assert bundle.manifest.selection.options == {"start": 1}
    assert bundle.subnetwork_indices.tolist() == list(range(1, 19, 2))
    inputs = case.data(TEST, seed=2)[0]
    prior = PRIOR * 9 / bundle.manifest.parameter_count
    truth = expected_variance(case, bundle.subnetwork_indices, prior, inputs)
    np.testing.assert_allclose(predictor.predict(inputs.numpy()).variance, truth, rtol=1e-4, atol=1e-6 * truth.max())


def test_what_a_function_may_not_choose_is_refused_and_nothing_is_published(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"found 9 positions, expected at most subnetwork_size, 8"):
        fit(
            BY_NAME["mlp-regression-1"],
            tmp_path / "bundle",
            selection=lambda context: range(9),
            subnetwork_size=8,
        )
    assert list(tmp_path.iterdir()) == []


def test_a_network_that_mixes_examples_is_refused_and_nothing_is_published(tmp_path: Path) -> None:
    class Mixing(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(4, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.layer(x - x.mean(0, keepdim=True))

    case = BY_NAME["mlp-classification-2"]
    with pytest.raises(ValueError, match="depend on the other examples of its batch"):
        fit_bundle(
            Mixing(),
            case.batches(TRAIN, 8),
            tmp_path / "bundle",
            calibration_loader=case.batches(HELD_OUT, 25, seed=1),
            config=FitConfig(subnetwork_size=4, selection="random"),
        )
    assert list(tmp_path.iterdir()) == []


def test_a_served_model_that_differs_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The verification is not a formality: export another network than the one fitted, and it is found out."""
    import demur.offline.publish.exporter

    def changed(jacobian, example, outputs, factor, *features):  # type: ignore[no-untyped-def]
        other = copy.copy(jacobian)
        other.model = copy.deepcopy(jacobian.model)
        with torch.no_grad():
            next(other.model.parameters()).mul_(1.001)
        return export_variance(other, example, outputs, factor, *features)

    monkeypatch.setattr(demur.offline.publish.exporter, "export_variance", changed)
    with pytest.raises(VerificationError, match="differs from torch in float64"):
        fit(BY_NAME["mlp-classification-2"], tmp_path / "bundle")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("without_export")
@pytest.mark.parametrize("prior", ["marglik"])
def test_prior_precision_is_chosen_and_recorded(prior: str, tmp_path: Path) -> None:
    path = fit(BY_NAME["mlp-regression-2"], tmp_path / "bundle", prior_precision=prior, sigma_noise="mle")
    manifest, _ = read_manifest(path)
    assert manifest.prior.method == prior
    ratio = manifest.subnetwork_size / manifest.parameter_count
    assert manifest.prior.used == pytest.approx(manifest.prior.precision * ratio)
    case = BY_NAME["mlp-regression-2"]
    mean = reference.full_jacobian(case.model(), case.data(HELD_OUT, seed=1)[0])[0]
    residual = np.sqrt(np.square(mean - case.data(HELD_OUT, seed=1)[1].numpy()).mean())
    assert manifest.noises == pytest.approx([residual] * 2, rel=0.5)  # tests/offline/test_noise.py says it exactly


def test_the_bundle_keeps_the_range_of_all_inputs_that_the_fit_met(tmp_path: Path) -> None:
    case = BY_NAME["mlp-regression-1"]
    predictor = Predictor.load(fit(case, tmp_path / "bundle"))
    met = torch.cat([case.data(TRAIN)[0], case.data(HELD_OUT, seed=1)[0]])
    found = predictor.manifest.input.range
    assert found is not None
    assert (min(found.low), max(found.high)) == pytest.approx((float(met.min()), float(met.max())), rel=1e-5)
    width = float(met.max() - met.min())
    ordinary, scaled = met[:5].numpy(), (met[:5] + 3 * width).numpy()
    outside = predictor.predict(np.concatenate([ordinary, scaled])).out_of_range
    assert outside is not None
    assert outside.tolist() == [False] * 5 + [True] * 5
