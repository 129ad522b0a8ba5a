"""Fit every network of the zoo at full size, and load its bundle with the serving code."""

import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.core.harness import MeasurementError, call
from benchmarks.core.settings import Settings, Values
from benchmarks.fit.networks.zoo import FULL, network_spec
from demur.offline.config import FitConfig
from demur.offline.fit import fit_bundle
from demur.service.inference.predictor import Predictor

WEIGHTS, QUICK_WEIGHTS = 500, 20
TRAINED, HELD_OUT = 16, 40
QUICK = ("mlp", "small-cnn")


def run(settings: Settings) -> Values:
    """One process per network; a failure is recorded with its message."""
    names = settings.names(tuple(FULL), QUICK)
    rows = []
    for name in settings.track(names, "Networks to bundles", len(names)):
        values = {
            "network": name,
            "size": settings.choose("full", "miniature"),
            "weights": settings.choose(WEIGHTS, QUICK_WEIGHTS),
        }
        try:
            rows.append({**values, **call("benchmarks.fit.bundles:one", values, settings.threads)})
        except MeasurementError as error:
            rows.append({**values, "failed": str(error)})
    every = settings.with_earlier("bundles", "network", rows, tuple(FULL))
    return {"rows": every}


def one(values: dict[str, Any]) -> dict[str, Any]:
    """Fit random weights of the network, load the bundle as the service does, predict one example and four."""
    network = network_spec(values["network"], values["size"])
    model = network.model()
    inputs, targets = network.data(TRAINED + HELD_OUT)
    with tempfile.TemporaryDirectory() as scratch:
        folder, start = Path(scratch) / "bundle", time.perf_counter()
        fit_bundle(
            model,
            [(inputs[:TRAINED], targets[:TRAINED])],
            folder,
            calibration_loader=[(inputs[TRAINED:], targets[TRAINED:])],
            config=FitConfig(subnetwork_size=values["weights"], selection="random", prior_precision=100.0),
        )
        seconds, predictor = time.perf_counter() - start, Predictor.load(folder)
        for rows in (1, 4):
            assert len(predictor.predict(inputs[:rows].numpy()).mean) == rows
    verification = predictor.manifest.verification
    assert verification is not None
    return {
        "parameters": sum(p.numel() for p in model.parameters()),
        "fit_seconds": seconds,
        "mean_error": verification.mean_error,
        "variance_error": verification.variance_error,
    }
