"""A model server that says how sure it is, and says no when it should.

>>> from probity import FitConfig, fit_bundle, Predictor
>>> fit_bundle(model, train_loader, "bundles/digits", calibration_loader=held_out, config=FitConfig(seed=0))
>>> prediction = Predictor.load("bundles/digits").predict(inputs)

Names are imported when they are first asked for: fitting needs `pip install '.[offline]'` in a checkout, the clients
`pip install '.[client]'`, and everything else the base install alone.
"""

import importlib
import importlib.metadata
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from probity.offline import FitConfig, fit_bundle, image_spec
    from probity.service import (
        BundleError,
        ImagePreprocessing,
        InputSpec,
        Manifest,
        NonFinitePrediction,
        Policy,
        Prediction,
        Predictor,
        read_bundle,
        write_bundle,
    )
    from probity.service.client import AsyncClient, Client, ProbityError

    from .estimators import ProbityClassifier, ProbityRegressor
    from .scoring.batches import BatchScorer

__all__ = [
    "AsyncClient",
    "BatchScorer",
    "BundleError",
    "Client",
    "FitConfig",
    "ImagePreprocessing",
    "InputSpec",
    "Manifest",
    "NonFinitePrediction",
    "Policy",
    "Prediction",
    "Predictor",
    "ProbityClassifier",
    "ProbityError",
    "ProbityRegressor",
    "__version__",
    "fit_bundle",
    "image_spec",
    "read_bundle",
    "write_bundle",
]
# Where a name comes from, and the extra of the install that it needs; every other name is of the base install.
OPTIONAL: dict[str, tuple[str, str | None]] = {
    "AsyncClient": ("probity.service.client", "client"),
    "BatchScorer": (".scoring.batches", None),
    "Client": ("probity.service.client", "client"),
    "ProbityError": ("probity.service.client", "client"),
    "ProbityClassifier": (".estimators", "offline"),
    "ProbityRegressor": (".estimators", "offline"),
    "FitConfig": ("probity.offline", "offline"),
    "fit_bundle": ("probity.offline", "offline"),
    "image_spec": ("probity.offline", "offline"),
}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return importlib.metadata.version("probity-serve")
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, extra = OPTIONAL.get(name, ("probity.service", None))
    try:
        return getattr(importlib.import_module(module, __name__), name)
    except ModuleNotFoundError as error:
        if extra is None:
            raise
        raise ImportError(
            f"probity.{name} needs {error.name}, which is not installed: in a checkout of Probity, pip install "
            f"'.[{extra}]'",
            name=error.name,
        ) from error


def __dir__() -> list[str]:
    return __all__
