"""scikit-learn estimators whose probabilities and intervals know when they do not know.

>>> model = make_pipeline(StandardScaler(), DemurClassifier(MLPClassifier((50,))))
>>> cross_val_score(model, X, y)

`fit` divides its examples: the network learns from one part, and the other, which it has not seen, calibrates. So each
fold of a cross-validation has a network and a bundle of its own.
"""

import logging
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin, clone, is_classifier, is_regressor
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier, MLPRegressor
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import nn

from demur.offline.config import FitConfig
from demur.offline.fit import fit_bundle
from demur.offline.recipes.words import in_words
from demur.service.bundle import InputSpec, staged_bundle
from demur.service.format.files import check_new
from demur.service.inference.decision import Decision
from demur.service.inference.policy import Policy
from demur.service.inference.predictor import Prediction, Predictor, check_finite
from demur.service.maths.rejection import minimum_calibration_examples

Array = npt.NDArray[Any]
WARNING = "warning: "
HELD_OUT, MOST_HELD_OUT = 0.3, 0.5
WORDS = {
    "calibration_loader": "held_out",
    "train_loader": "X",
    "class_names": "y, its classes",
    "targets": "y",
    "model": "network",
}
log = logging.getLogger("demur")


def _share(count: int, config: FitConfig) -> float:
    """What part of so many examples calibrates: usually `HELD_OUT`, of few as many as a threshold and tuning need, and
    at most half."""
    least = 2 * minimum_calibration_examples(config.false_reject_rate)
    return min(MOST_HELD_OUT, max(HELD_OUT, least / count))


def _tell(line: str) -> None:
    """Warnings alone: the bundle's own folder is gone when they are read."""
    if line.startswith(WARNING):
        log.warning(line.removeprefix(WARNING))


class _Estimator(BaseEstimator):  # type: ignore[misc]
    """What both have. `bundle_`: the fitted bundle's files by name; `write_bundle` makes a folder of them."""

    def __init__(
        self,
        network: Any = None,
        *,
        held_out: float | None = None,
        config: FitConfig | None = None,
        random_state: int | None = 0,
    ) -> None:
        self.network, self.held_out, self.config, self.random_state = network, held_out, config, random_state

    def _fit(self, x: Array, y: Array, names: list[str] | None, options: dict[str, Any], stratify: bool) -> None:
        if not isinstance(self.config, FitConfig | None):
            raise TypeError(f"config: found {type(self.config).__name__}, expected a FitConfig")
        if self.held_out is not None and not (isinstance(self.held_out, float) and 0 < self.held_out < 1):
            raise ValueError(f"held_out: found {self.held_out!r}, expected a share above 0 and below 1")
        given = {} if self.config is None else self.config.model_dump(exclude_unset=True)
        config = FitConfig(**{**given, **options})
        share = _share(len(x), config) if self.held_out is None else self.held_out
        # The only example of a class is learnt from: the network would not know of the class otherwise.
        alone = np.bincount(y)[y] == 1 if stratify else np.zeros(len(x), bool)
        several, groups = np.flatnonzero(~alone), y[~alone] if stratify else None
        try:
            learnt, held = train_test_split(several, test_size=share, random_state=self.random_state, stratify=groups)
        except ValueError as error:
            if isinstance(error, TypeError):  # of random_state, in its own words
                raise
            raise ValueError(
                f"X: found n_samples={len(x)}, expected enough to learn from, and beside them {100 * share:g} % that "
                "calibrate, some of each class"
            ) from None
        learnt = np.concatenate([learnt, np.flatnonzero(alone)])
        network, names_in = self._trained(x[learnt], y[learnt]), getattr(self, "feature_names_in_", None)
        spec = None if names_in is None else InputSpec(shape=x.shape[1:], feature_names=tuple(names_in))
        with in_words(WORDS), tempfile.TemporaryDirectory() as scratch:
            path = fit_bundle(
                network,
                (x[learnt].astype(np.float32), y[learnt]),
                Path(scratch) / "bundle",
                calibration_loader=(x[held].astype(np.float32), y[held]),
                config=config,
                class_names=names,
                input_spec=spec,
                say=_tell,
            )
            self.bundle_ = {file.name: file.read_bytes() for file in sorted(path.iterdir())}
            self._opened: Predictor | None = Predictor.load(path)

    def _trained(self, x: Array, y: Array) -> object:
        """A copy of an estimator is trained; a module is as it is given; a function trains and returns one."""
        network = self._default() if self.network is None else self.network
        if isinstance(network, nn.Module):
            return network
        if isinstance(network, BaseEstimator):
            if not (is_classifier if is_classifier(self) else is_regressor)(network):
                found, kind = type(network).__name__, "classifier" if is_classifier(self) else "regressor"
                raise TypeError(f"network: found {found}, expected a {kind}, as is this {type(self).__name__}")
            return clone(network).fit(x, y)
        if callable(network):
            return network(x, y)
        raise TypeError(
            f"network: found {type(network).__name__}, expected a perceptron of scikit-learn, a trained "
            "torch.nn.Module, or a function of X and y that trains one"
        )

    def _default(self) -> BaseEstimator:
        raise NotImplementedError

    def write_bundle(self, out: str | Path) -> Path:
        """The fitted bundle as a new folder, whole or not at all, to be served; raises `BundleError` where there is
        something."""
        check_is_fitted(self)
        path = Path(out)
        check_new(path, replace=False)
        with staged_bundle(path) as folder:
            for name, content in self.bundle_.items():
                (folder / name).write_bytes(content)
        return path

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = super().__getstate__()
        return state | {"_opened": None} if "_opened" in state else state

    def _predictor(self) -> Predictor:
        check_is_fitted(self)
        if self._opened is None:
            with tempfile.TemporaryDirectory() as scratch:
                self._opened = Predictor.load(self.write_bundle(Path(scratch) / "bundle"))
        return self._opened

    def _decision(self, level: float) -> Decision:
        decision = self._predictor().decision
        with in_words({"interval_level": "level"}):
            return replace(decision, policy=Policy(**decision.policy.model_dump() | {"interval_level": level}))

    def _predict(self, x: Any) -> Prediction:
        check_is_fitted(self)
        checked = validate_data(self, x, reset=False, allow_nd=True)
        if np.abs(checked).max(initial=0) > np.finfo(np.float32).max:
            raise ValueError("X: found values too large for float32, in which the network computes")
        prediction = self._predictor().predict(checked.astype(np.float32))
        check_finite(prediction)
        return prediction

    def score_samples(self, X: Any) -> Array:  # noqa: N803  scikit-learn's name
        """(n,): how ordinary each example is, the higher the more; minus the score of the bundle."""
        return -self._predict(X).score

    def is_rejected(self, X: Any) -> Array:  # noqa: N803
        """(n,) bool: which examples should be checked before their prediction is relied on."""
        return self._predict(X).rejected


class DemurClassifier(ClassifierMixin, _Estimator):  # type: ignore[misc]
    """Classes with calibrated probabilities, prediction sets and rejections.

    network: an `MLPClassifier`, of which a copy is trained (the default, with one hidden layer of 100); a function of X
    and class numbers y that returns a trained torch module; or a trained module, which has seen none of the data given
    to `fit`: what calibrates must be new to it. held_out: the share of the examples that calibrates; by default 30 %,
    and of few as many as a threshold needs, at most half. config: options of the fit.

    Fitted: `classes_`, `n_features_in_`, `feature_names_in_`, `bundle_`.
    """

    classes_: Array

    def fit(self, X: Any, y: Any) -> Self:  # noqa: N803
        """X (n, features) or as the network takes it; y (n,): classes of any type."""
        X, y = validate_data(self, X, y, allow_nd=True)  # noqa: N806
        check_classification_targets(y)
        self.classes_, numbers = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(f"y: found one class, {self.classes_.tolist()[0]!r}, expected at least two")
        self._fit(X, numbers, [str(name) for name in self.classes_], {"likelihood": "classification"}, True)
        return self

    def _default(self) -> BaseEstimator:
        return MLPClassifier(random_state=self.random_state)

    def predict_proba(self, X: Any) -> Array:  # noqa: N803
        """(n, K), in the order of `classes_`."""
        found = self._predict(X).probabilities
        assert found is not None  # of a classification
        return np.asarray(found, np.float64)

    def predict(self, X: Any) -> Array:  # noqa: N803
        """(n,): the network's own classes, which uncertainty never changes."""
        probabilities = self.predict_proba(X)
        return np.asarray(self.classes_[probabilities.argmax(axis=1)])

    def predict_set(self, X: Any, level: float = 0.95) -> Array:  # noqa: N803
        """(n, K) bool: which classes are in a set that holds the true one with this probability (conformal)."""
        return self._decision(level).members(self._predict(X))


class DemurRegressor(RegressorMixin, _Estimator):  # type: ignore[misc]
    """Values with intervals and rejections; the parameters are those of `DemurClassifier`, with an `MLPRegressor`."""

    def fit(self, X: Any, y: Any) -> Self:  # noqa: N803
        """X (n, features) or as the network takes it; y (n,) or (n, K): values."""
        X, y = validate_data(self, X, y, allow_nd=True, multi_output=True, y_numeric=True)  # noqa: N806
        self._flat = y.ndim == 1
        self._fit(X, y.astype(np.float32), None, {"likelihood": "regression"}, stratify=False)
        return self

    def _default(self) -> BaseEstimator:
        return MLPRegressor(random_state=self.random_state)

    def _shaped(self, values: Array) -> Array:
        return np.asarray(values[:, 0] if self._flat else values, np.float64)

    def predict(self, X: Any, return_std: bool = False) -> Array | tuple[Array, Array]:  # noqa: N803
        """(n,) or (n, K): the network's own values; return_std: and their standard deviations, noise included."""
        prediction = self._predict(X)
        mean = self._shaped(prediction.mean)
        if not return_std:
            return mean
        assert prediction.std is not None  # of a regression
        return mean, self._shaped(prediction.std)

    def predict_interval(self, X: Any, level: float = 0.95) -> tuple[Array, Array]:  # noqa: N803
        """The ends, (n,) or (n, K) both, of intervals that hold the value with this probability (conformal)."""
        low, high = self._decision(level).intervals(self._predict(X))
        return self._shaped(low), self._shaped(high)
