"""A predictor with a cascade, against the oracle of its score, and against the full stage."""

import dataclasses
import math
import pickle
from pathlib import Path

import numpy as np
import pytest

from service.bundle import CASCADE_CALIBRATION, CASCADE_MODEL, BundleError, read_bundle
from service.inference.predictor import Prediction, Predictor
from tests.support.bundles import Array, Synthetic, rewrite
from tests.support.cascades import CascadeBundle, write_cascade

ROWS = 60


@pytest.fixture(scope="module", params=["classification", "regression"])
def cascade(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> CascadeBundle:
    return write_cascade(tmp_path_factory.mktemp("cascade") / "bundle", regression=request.param == "regression")


def draw(rows: int = ROWS, seed: int = 0, scale: float = 1.0) -> Array:
    return np.random.default_rng(seed).normal(scale=scale, size=(rows, 4)).astype(np.float32)


def test_it_answers_as_the_oracle(cascade: CascadeBundle) -> None:
    inputs = draw()
    prediction = Predictor.load(cascade.path, cascade=True).predict(inputs)
    first, _ = cascade.stage_scores(inputs)
    decided = (first < cascade.cascade.low) | (first > cascade.high)
    assert 0.2 < decided.mean() < 0.9
    assert prediction.by_first_stage is not None
    assert prediction.by_first_stage.tolist() == decided.tolist()
    score = cascade.score(inputs)
    np.testing.assert_allclose(prediction.score, score, rtol=1e-4)
    variance = np.where(decided[:, np.newaxis], cascade.first_variance(inputs), cascade.full.variance(inputs))
    np.testing.assert_allclose(prediction.variance, variance, rtol=1e-4)
    np.testing.assert_allclose(prediction.mean, cascade.full.mean(inputs), rtol=1e-4, atol=1e-5)
    higher = [(1 + sum(other >= s for other in cascade.scores)) / (len(cascade.scores) + 1) for s in prediction.score]
    np.testing.assert_allclose(prediction.p_value, higher)
    assert prediction.rejected.tolist() == (np.array(higher) <= cascade.full.alpha).tolist()
    assert 0 < prediction.rejected.sum() < ROWS


def test_the_rest_of_an_answer_is_that_of_its_stage(cascade: CascadeBundle) -> None:
    inputs = draw()
    found, full = (Predictor.load(cascade.path, cascade=on).predict(inputs) for on in (True, False))
    assert full.by_first_stage is None
    assert found.by_first_stage is not None
    rest = ~found.by_first_stage
    for field in dataclasses.fields(Prediction):
        values, expected = getattr(found, field.name), getattr(full, field.name)
        if expected is None or field.name in ("p_value", "rejected"):  # by another rule
            continue
        np.testing.assert_allclose(values[rest], expected[rest], rtol=1e-5, err_msg=field.name)
        assert not np.allclose(values, expected, rtol=1e-3) or field.name in ("mean", "map_probabilities", "aleatoric")


def test_a_batch_of_one_and_chunks_answer_as_a_batch_of_many(cascade: CascadeBundle) -> None:
    inputs = draw(20)
    whole = Predictor.load(cascade.path, cascade=True).predict(inputs)
    small = Predictor.load(cascade.path, cascade=True, jacobian_bytes=1)
    assert small.chunk_rows == 1
    alone = Prediction.concatenate([small.predict(inputs[i : i + 1]) for i in range(20)])
    for prediction in (small.predict(inputs), alone):
        np.testing.assert_allclose(prediction.score, whole.score, rtol=1e-5)
        assert prediction.by_first_stage is not None
        assert whole.by_first_stage is not None
        assert prediction.by_first_stage.tolist() == whole.by_first_stage.tolist()


@pytest.mark.parametrize(("band", "share"), [((0, 1), 0.0), ((0.5, 0.5), 1.0)])
def test_one_stage_for_all(tmp_path: Path, band: tuple[float, float], share: float) -> None:
    found = write_cascade(tmp_path / "bundle", band)
    prediction = Predictor.load(found.path, cascade=True).predict(draw())
    assert prediction.by_first_stage is not None
    assert prediction.by_first_stage.mean() == share
    np.testing.assert_allclose(prediction.score, found.score(draw()), rtol=1e-4)


def test_what_is_not_finite_goes_to_the_full_stage_and_is_rejected(cascade: CascadeBundle) -> None:
    inputs = draw(3)
    inputs[1] = 3e38
    prediction = Predictor.load(cascade.path, cascade=True).predict(inputs)
    assert prediction.finite.tolist() == [True, False, True]
    assert prediction.score[1] == math.inf
    assert prediction.rejected[1]
    assert prediction.by_first_stage is not None
    assert not prediction.by_first_stage[1]


def test_a_bundle_without_a_cascade_serves_as_before(classification: Synthetic) -> None:
    predictor = Predictor.load(classification.path, cascade=True)
    assert predictor.first_stage is None
    assert predictor.predict(draw()).by_first_stage is None


def test_a_pickle_keeps_the_cascade(cascade: CascadeBundle) -> None:
    predictor = pickle.loads(pickle.dumps(Predictor.load(cascade.path, cascade=True)))
    assert predictor.first_stage is not None
    assert pickle.loads(pickle.dumps(Predictor.load(cascade.path))).first_stage is None


def test_a_threshold_that_the_scores_contradict_is_refused(cascade: CascadeBundle, tmp_path: Path) -> None:
    manifest = read_bundle(cascade.path).manifest
    wrong = dataclasses.replace(cascade.cascade.calibration, threshold=12.5)
    manifest = dataclasses.replace(manifest, cascade=dataclasses.replace(cascade.cascade, calibration=wrong))
    rewrite(cascade.path, tmp_path / "bundle", manifest=manifest)
    Predictor.load(tmp_path / "bundle")  # only the cascade is wrong, and it is not asked for
    with pytest.raises(BundleError, match=r"cascade\.calibration\.threshold: found 12\.5, the calibration scores give"):
        Predictor.load(tmp_path / "bundle", cascade=True)


def test_a_first_stage_of_another_signature_is_refused(cascade: CascadeBundle, tmp_path: Path) -> None:
    bundle = read_bundle(cascade.path)
    assert bundle.cascade is not None
    rewrite(cascade.path, tmp_path / "bundle", cascade=dataclasses.replace(bundle.cascade, model=bundle.model))
    with pytest.raises(BundleError, match=rf"{CASCADE_MODEL}.*found the graph signature"):
        Predictor.load(tmp_path / "bundle", cascade=True)


def test_files_and_manifest_say_the_same(cascade: CascadeBundle, tmp_path: Path) -> None:
    bundle = read_bundle(cascade.path)
    assert {CASCADE_MODEL, CASCADE_CALIBRATION} <= set(bundle.manifest.files)
    for changes in ({"cascade": None}, {"manifest": dataclasses.replace(bundle.manifest, cascade=None)}):
        with pytest.raises(ValueError, match=r"cascade: found .* cascade, expected .* as in the manifest"):
            rewrite(cascade.path, tmp_path / "bundle", **changes)
    assert not (tmp_path / "bundle").exists()
