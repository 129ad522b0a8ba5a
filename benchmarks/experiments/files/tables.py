"""Estimators of other packages on tables that packages ship, converted to ONNX by the packages' own converters."""

import importlib.metadata
import importlib.util
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from sklearn.datasets import load_breast_cancer, load_digits, load_wine
from sklearn.ensemble import ExtraTreesClassifier, GradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from benchmarks.core.harness import MeasurementError
from benchmarks.experiments.files.case import Array, Case, case
from benchmarks.experiments.strangers.data import fair, penguins

CONVERTERS = ("skl2onnx", "onnxmltools", "lightgbm", "xgboost")
TRAINED = 0.4  # of the examples, as in `case`


def need_converters() -> None:
    """`MeasurementError` where one is not installed."""
    if missing := [name for name in CONVERTERS if importlib.util.find_spec(name) is None]:
        raise MeasurementError(f"{', '.join(missing)}: not installed, expected; pip install {' '.join(CONVERTERS)}")


def of_sklearn(load: Callable[[], tuple[Array, Array]], estimator: Any, kind: str) -> Case:
    """Fitted to the training part, and converted by skl2onnx."""
    from skl2onnx import to_onnx  # type: ignore[import-not-found,import-untyped,unused-ignore]

    x, y = _table(load)
    fitted = estimator.fit(*_part(x, y))
    return case(to_onnx(fitted, x[:1]).SerializeToString(), _made("skl2onnx"), kind, x, y)


def of_boosting(load: Callable[[], tuple[Array, Array]], name: str, kind: str) -> Case:
    """LightGBM or XGBoost as it is, converted by onnxmltools."""
    x, y = _table(load)
    return case(converted(name, "Classifier", *_part(x, y)), _made("onnxmltools"), kind, x, y)


def converted(name: str, kind: str, x: Array, y: Array) -> bytes:
    """The file of an estimator of LightGBM or XGBoost that is fitted to these rows. kind: Classifier or Regressor."""
    import onnxmltools  # type: ignore[import-not-found,import-untyped,unused-ignore]
    from onnxmltools.convert.common.data_types import (  # type: ignore[import-not-found,import-untyped,unused-ignore]
        FloatTensorType,
    )

    made = getattr(importlib.import_module(name), f"{'LGBM' if name == 'lightgbm' else 'XGB'}{kind}")
    fitted = made(random_state=0, **({"verbose": -1} if name == "lightgbm" else {})).fit(x, y)
    types = [("x", FloatTensorType([None, x.shape[1]]))]
    found: bytes = getattr(onnxmltools, f"convert_{name}")(fitted, initial_types=types).SerializeToString()
    return found


def _made(converter: str) -> str:
    return f"{converter}=={importlib.metadata.version(converter)}"


def _table(load: Callable[[], tuple[Array, Array]]) -> tuple[Array, Array]:
    x, y = load()
    return x.astype(np.float32), y.astype(np.int64)


def _part(x: Array, y: Array) -> tuple[Array, Array]:
    """The rows that `case` trains on."""
    rows = np.random.default_rng(0).permutation(len(y))[: int(TRAINED * len(y))]
    return x[rows], y[rows]


def _of(load: Callable[..., Any]) -> Callable[[], tuple[Array, Array]]:
    return partial(load, return_X_y=True)


TABLES: dict[str, Callable[[], Case]] = {
    "forest": partial(of_sklearn, fair, RandomForestClassifier(random_state=0), "survey answers, random forest"),
    "extra trees": partial(of_sklearn, _of(load_digits), ExtraTreesClassifier(random_state=0), "digits, extra trees"),
    "boosting": partial(
        of_sklearn, _of(load_breast_cancer), GradientBoostingClassifier(random_state=0), "tumours, gradient boosting"
    ),
    "pipeline": partial(
        of_sklearn, _of(load_wine), make_pipeline(StandardScaler(), LogisticRegression()), "wines, scaler and logits"
    ),
    "neighbours": partial(of_sklearn, penguins, KNeighborsClassifier(15), "penguins, 15 nearest neighbours"),
    "naive Bayes": partial(of_sklearn, _of(load_digits), GaussianNB(), "digits, naive Bayes"),
    "LightGBM": partial(of_boosting, fair, "lightgbm", "survey answers, LightGBM"),
    "LightGBM digits": partial(of_boosting, _of(load_digits), "lightgbm", "digits, LightGBM"),
    "XGBoost": partial(of_boosting, fair, "xgboost", "survey answers, XGBoost"),
    "XGBoost tumours": partial(of_boosting, _of(load_breast_cancer), "xgboost", "tumours, XGBoost"),
}
