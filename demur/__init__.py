"""A model server that says how sure it is, and demurs when it should.

>>> from demur import FitConfig, fit_bundle, Predictor
>>> fit_bundle(model, train_loader, "bundles/digits", calibration_loader=held_out, config=FitConfig(seed=0))
>>> prediction = Predictor.load("bundles/digits").predict(inputs)

Names are imported when they are first asked for: fitting needs `pip install '.[offline]'` in a checkout, the clients
`pip install '.[client]'`, and everything else the base install alone.
"""

import importlib
import importlib.metadata
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from demur.offline import FitConfig, fit_bundle, image_spec
    from demur.service import (
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
    from demur.service.client import AsyncClient, Client, DemurError

    from .estimators import DemurClassifier, DemurRegressor
    from .scoring.batches import BatchScorer

__all__ = [
    "AsyncClient",
    "BatchScorer",
    "BundleError",
    "Client",
    "DemurClassifier",
    "DemurError",
    "DemurRegressor",
    "FitConfig",
    "ImagePreprocessing",
    "InputSpec",
    "Manifest",
    "NonFinitePrediction",
    "Policy",
    "Prediction",
    "Predictor",
    "__version__",
    "fit_bundle",
    "image_spec",
    "read_bundle",
    "write_bundle",
]
# Where a name comes from, and the extra of the install that it needs; every other name is of the base install.
OPTIONAL: dict[str, tuple[str, str | None]] = {
    "AsyncClient": ("demur.service.client", "client"),
    "BatchScorer": (".scoring.batches", None),
    "Client": ("demur.service.client", "client"),
    "DemurClassifier": (".estimators", "offline"),
    "DemurError": ("demur.service.client", "client"),
    "DemurRegressor": (".estimators", "offline"),
    "FitConfig": ("demur.offline", "offline"),
    "fit_bundle": ("demur.offline", "offline"),
    "image_spec": ("demur.offline", "offline"),
}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return importlib.metadata.version("demur")
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, extra = OPTIONAL.get(name, ("demur.service", None))
    try:
        return getattr(importlib.import_module(module, __name__), name)
    except ModuleNotFoundError as error:
        if extra is None:
            raise
        raise ImportError(
            f"demur.{name} needs {error.name}, which is not installed: in a checkout of Demur, pip install "
            f"'.[{extra}]'",
            name=error.name,
        ) from error


def __dir__() -> list[str]:
    return __all__
