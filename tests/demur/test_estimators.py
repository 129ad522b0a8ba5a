"""Estimators of scikit-learn in pipelines and cross-validation, and by scikit-learn's own checks."""

import hashlib
import io
import pickle
import re
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestClassifier
from sklearn.exceptions import NotFittedError
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks
from torch import nn

from demur import BundleError, DemurClassifier, DemurRegressor, FitConfig, Predictor
from demur.offline.export.graph import export_variance
from demur.offline.publish import exporter

pytestmark = [
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),
    pytest.mark.usefixtures("short_fits"),
]
DRAW = np.random.default_rng(0)
X = DRAW.normal(size=(400, 3)) * [1, 20, 0.1] + [0, 5, 1]
SIGNAL = X[:, 0] + 0.3 * DRAW.normal(size=400)
NAMES = np.array(["high", "low", "middle"])
Y = NAMES[np.select([SIGNAL > 0.5, SIGNAL < -0.5], [0, 1], 2)]


@pytest.fixture(scope="module")
def classifier() -> Any:
    return make_pipeline(StandardScaler(), DemurClassifier(MLPClassifier((16,), max_iter=80, random_state=0))).fit(X, Y)


def test_classes_probabilities_and_rejections(classifier: Any) -> None:
    last, x = classifier[-1], classifier[:-1].transform(X)
    probabilities = classifier.predict_proba(X)
    assert list(classifier.classes_) == sorted(NAMES)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, rtol=1e-6)
    assert (classifier.predict(X) == last.classes_[probabilities.argmax(axis=1)]).all()
    assert classifier.score(X, Y) > 0.7
    assert last.is_rejected(x).mean() < 0.15
    assert last.is_rejected(100 * x[:20]).all()
    assert last.score_samples(100 * x[:20]).max() < np.median(last.score_samples(x))


@pytest.mark.parametrize("level", [0.5, 0.8, 0.95])
def test_sets_hold_the_class_as_often_as_they_say(classifier: Any, level: float) -> None:
    members = classifier[-1].predict_set(classifier[:-1].transform(X), level)
    held = members[np.arange(len(Y)), np.searchsorted(classifier.classes_, Y)].mean()
    assert members.shape == (400, 3)
    assert held > level - 0.07


def test_a_copy_by_pickle_gives_the_same(classifier: Any) -> None:
    again = pickle.loads(pickle.dumps(classifier))
    np.testing.assert_array_equal(again.predict_proba(X), classifier.predict_proba(X))


def test_the_bundle_can_be_served(classifier: Any, tmp_path: Path) -> None:
    path = classifier[-1].write_bundle(tmp_path / "bundle")
    x = classifier[:-1].transform(X[:5]).astype(np.float32)
    assert (Predictor.load(path).predict(x).labels == classifier.predict(X[:5])).all()
    with pytest.raises(BundleError, match="holds a bundle"):
        classifier[-1].write_bundle(path)


def test_each_fit_has_a_network_of_its_own(classifier: Any) -> None:
    """A copy is trained, so that the folds of a cross-validation share nothing."""
    assert not hasattr(classifier[-1].network, "coefs_")


def trained(x: np.ndarray, y: np.ndarray) -> nn.Module:
    """A network of images, trained by torch."""
    torch.manual_seed(0)
    network = nn.Sequential(nn.Conv2d(1, 6, 3), nn.ReLU(), nn.Flatten(), nn.Linear(216, 10))
    inputs, targets = torch.as_tensor(x).float(), torch.as_tensor(y)
    optimiser = torch.optim.Adam(network.parameters(), 1e-2)
    for _ in range(60):
        optimiser.zero_grad()
        nn.functional.cross_entropy(network(inputs), targets).backward()
        optimiser.step()
    return network


def test_a_function_may_train_the_network_and_a_module_is_taken_as_it_is() -> None:
    x, y = load_digits(return_X_y=True)
    images = (x / 16).reshape(-1, 1, 8, 8)
    found = DemurClassifier(trained).fit(images[:900], y[:900])
    assert found.score(images[900:], y[900:]) > 0.8
    assert found.is_rejected(1 - images[900:]).mean() > 0.9
    network = trained(images[:900], y[:900])
    given = DemurClassifier(network).fit(images[:900], y[:900])
    with torch.no_grad():
        expected = network(torch.as_tensor(images[900:]).float()).argmax(1).numpy()
    assert (given.predict(images[900:]) == expected).all()


def test_values_have_deviations_and_intervals() -> None:
    y = 3 * X[:, 0] + 0.5 * DRAW.normal(size=400)
    scaled = StandardScaler().fit_transform(X)
    model = DemurRegressor().fit(scaled[:300], y[:300])
    mean, std = model.predict(scaled[300:], return_std=True)
    low, high = model.predict_interval(scaled[300:], 0.9)
    assert mean.shape == std.shape == low.shape == (100,)
    assert ((low < y[300:]) & (y[300:] < high)).mean() > 0.8
    assert (
        model.predict(scaled[300:], return_std=True)[1].mean()
        < model.predict(20 * scaled[300:], return_std=True)[1].mean()
    )
    both = DemurRegressor().fit(scaled, np.column_stack([y, -y]))
    assert np.asarray(both.predict(scaled[:4])).shape == both.predict_interval(scaled[:4])[0].shape == (4, 2)


@pytest.mark.parametrize(
    ("network", "error", "named"),
    [("net", TypeError, "found str"), (RandomForestClassifier(5), TypeError, "taken as ONNX")],
)
def test_what_is_no_network_is_refused(network: Any, error: type[Exception], named: str) -> None:
    with pytest.raises(error, match=named):
        DemurClassifier(network).fit(X, Y)


SMALL: dict[str, Any] = {"network": MLPClassifier((5,), max_iter=5)}
MEAN = SIGNAL[:60]
ODD: Any = {"seed": 1}


@pytest.mark.parametrize(
    ("estimator", "x", "y", "words"),
    [
        (DemurClassifier(), X[:60], np.zeros(60, int), r"^y: found one class, 0, expected"),
        (DemurClassifier(), X[:60], np.full(60, "a"), r"^y: found one class, 'a', expected"),
        (DemurClassifier(**SMALL), X[:4], [0, 1, 0, 1], r"^held_out: found 1 examples to set the threshold"),
        (DemurRegressor(), X[:1], [1.0], r"^X: found n_samples=1, expected enough to learn from"),
        (DemurClassifier(held_out=0), X[:60], Y[:60], r"^held_out: found 0, expected a share above 0 and below 1"),
        (DemurRegressor(held_out=1), X[:60], MEAN, r"^held_out: found 1, expected a share"),
        (DemurRegressor(config=ODD), X[:60], MEAN, r"^config: found dict, expected a FitConfig"),
        (DemurClassifier(MLPRegressor()), X[:60], Y[:60], r"^network: found MLPRegressor, expected a classifier"),
        (DemurRegressor(MLPClassifier()), X[:60], MEAN, r"^network: found MLPClassifier, expected a regressor"),
        (DemurClassifier(nn.Linear(3, 5)), X, Y, r"^y, its classes: found \['high', .*expected 5 names"),
        (DemurClassifier(nn.Linear(4, 3)), X, Y, r"^network: cannot process the inputs of X, found shape"),
        (DemurRegressor(nn.Linear(3, 3)), X, SIGNAL, r"^y: found shape \(\d+,\), expected \(\d+, 3\)"),
        (DemurClassifier(lambda *_: None), X, Y, r"^network: found NoneType, expected a trained network"),
        (DemurRegressor(nn.Linear(3, 1)), 1e39 * X, SIGNAL, r"^X, batch 0: found"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
@pytest.mark.filterwarnings("ignore:overflow")
def test_an_error_is_told_in_the_words_of_the_estimator(estimator: Any, x: Any, y: Any, words: str) -> None:
    with pytest.raises((ValueError, TypeError), match=words) as caught:
        estimator.fit(x, y)
    assert not re.search("loader|fit_bundle|likelihood|class_names|test_size", str(caught.value))


@pytest.mark.parametrize("level", [0, 1, 2, "much"])
def test_a_level_that_is_none_is_told_in_its_own_word(classifier: Any, level: Any) -> None:
    with pytest.raises(ValueError, match=r"^level: found"):
        classifier[-1].predict_set(X[:5], level)


@pytest.mark.parametrize("factor", [1e30, 1e39, 1e290])
def test_what_the_network_cannot_compute_is_refused(classifier: Any, factor: float) -> None:
    for ask in ("predict", "predict_proba", "is_rejected", "score_samples"):
        with pytest.raises(ValueError, match=r"too large for float32|not finite"):
            getattr(classifier[-1], ask)(X[:5] * factor * 1e10)


def test_the_only_example_of_a_class_is_learnt_from() -> None:
    classes = np.where(SIGNAL[:80] > 0, "b", "a")
    classes[7] = "c"
    model = DemurClassifier(**SMALL, random_state=0).fit(X[:80], classes)
    assert model.predict_proba(X[:5]).shape == (5, 3)


def test_nothing_is_predicted_before_a_fit() -> None:
    for ask in ("predict", "predict_proba", "predict_set", "score_samples", "is_rejected"):
        with pytest.raises(NotFittedError):
            getattr(DemurClassifier(), ask)(X)


# The checks have 20 to 100 examples: a share of 5 % needs more to set a threshold.
FEW: dict[str, Any] = {"held_out": 0.5, "config": FitConfig(false_reject_rate=0.4)}
ROUNDING = dict.fromkeys(
    ("check_methods_subset_invariance", "check_methods_sample_order_invariance"),
    "answers in float32 differ by 1e-7 with the size of a batch, and the place in it",
)


class Content(pickle.Pickler):
    """Writes what differs from one equal object to the next by its value: the storage of a tensor, the numbers that
    torch counts hooks by."""

    def reducer_override(self, value: object) -> Any:
        if isinstance(value, torch.Tensor):
            return type(value), (value.detach().numpy(), value.requires_grad)
        if isinstance(value, OrderedDict):
            return OrderedDict, ([(None if isinstance(key, int) else key, each) for key, each in value.items()],)
        return NotImplemented


def digest(values: object) -> bytes:
    """Equal only for equal contents, whatever objects have them."""
    written = io.BytesIO()
    Content(written).dump(values)
    return hashlib.sha256(written.getvalue()).digest()


@pytest.fixture(scope="module")
def no_export_twice() -> Iterator[None]:
    """The checks fit the same data to the same network again and again: its graph is exported the first time alone.

    That takes four fifths of such a fit. Everything that an export reads is compared, to the bit; each bundle is
    verified as ever.
    """
    real, graphs = export_variance, dict[bytes, tuple[bytes, int]]()

    def export(*read: Any) -> tuple[bytes, int]:
        key = digest(read)
        if key not in graphs:
            graphs[key] = real(*read)
        return graphs[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exporter, "export_variance", export)
        yield


@pytest.mark.slow
@pytest.mark.usefixtures("no_export_twice")
@pytest.mark.filterwarnings("ignore")
@parametrize_with_checks([DemurClassifier(**FEW), DemurRegressor(**FEW)], expected_failed_checks=lambda _: ROUNDING)
def test_it_is_an_estimator_of_scikit_learn(estimator: Any, check: Any) -> None:
    check(estimator)


def test_the_bundle_has_the_columns_of_the_frame(tmp_path: Path) -> None:
    """By their names, in whatever order a file or a request has them."""
    frame = pd.DataFrame(X[:80], columns=["age", "height", "dose"])
    model = DemurClassifier(**SMALL).fit(frame, Y[:80])
    predictor = Predictor.load(model.write_bundle(tmp_path / "bundle"))
    assert predictor.manifest.input.feature_names == ("age", "height", "dose")
    np.testing.assert_array_equal(predictor.predict(frame[["dose", "age", "height"]]).labels, model.predict(frame))
