"""Names of classes that a model has itself are the bundle's, unless others are given."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from demur.offline.config import FitConfig
from demur.offline.fit import dry_run, fit_bundle
from demur.offline.network.given_network import class_names_of
from demur.service.inference.predictor import Predictor

DRAW = np.random.default_rng(0)
X = DRAW.normal(size=(300, 3)) * [1, 20, 0.1] + [0, 5, 1]
Y = (X[:, 0] + DRAW.normal(size=300) * 0.5 > 0).astype(int) + (X[:, 1] > 10)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_pipeline_of_scikit_learn_is_fitted_whole(tmp_path: Path) -> None:
    model = make_pipeline(StandardScaler(), MLPClassifier((12,), max_iter=60, random_state=0)).fit(X[:150], Y[:150])
    config = FitConfig()
    path = fit_bundle(model, (X[:150], Y[:150]), tmp_path / "b", calibration_loader=(X[150:], Y[150:]), config=config)
    predictor = Predictor.load(path)
    assert predictor.manifest.class_names == ("0", "1", "2")
    found = predictor.predict(X.astype(np.float32))
    assert (found.labels == np.array(["0", "1", "2"])[model.predict(X)]).all()
    assert predictor.predict(1000 * X[:9].astype(np.float32)).rejected.all()


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_columns_in_another_order_than_the_model_has_learnt_are_refused(tmp_path: Path) -> None:
    frame = pd.DataFrame(X, columns=["length", "weight", "age"])
    model = make_pipeline(StandardScaler(), MLPClassifier((4,), max_iter=5, random_state=0)).fit(frame[:150], Y[:150])
    train, held_out = (frame[["age", "length", "weight"]][:150], Y[:150]), (frame[150:], Y[150:])
    with pytest.raises(ValueError, match=r"columns age, length, weight, expected .*: length, weight, age; give"):
        fit_bundle(model, train, tmp_path / "b", calibration_loader=held_out)
    assert dry_run(model, (frame[:150], Y[:150]), calibration_loader=held_out)


def with_labels(*names: str) -> object:
    return SimpleNamespace(config=SimpleNamespace(id2label=dict(enumerate(names))))


def wrapped() -> torch.nn.Module:
    inner = torch.nn.Linear(1, 2)
    inner.config = SimpleNamespace(id2label={0: "cat", 1: "dog"})  # type: ignore[assignment]
    return torch.nn.DataParallel(inner)


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        (with_labels("cat", "dog"), ("cat", "dog")),
        (wrapped(), ("cat", "dog")),
        (with_labels("LABEL_0", "LABEL_1"), None),
        (with_labels("cat", "cat"), None),
        (with_labels("cat", "dog", "cow"), None),
        (SimpleNamespace(classes_=np.array(["a", "b"])), ("a", "b")),
        (SimpleNamespace(config=None), None),
        (torch.nn.Linear(1, 2), None),
    ],
)
def test_names_that_a_model_has(model: object, expected: tuple[str, ...] | None) -> None:
    assert class_names_of(model, 2) == expected
