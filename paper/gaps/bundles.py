"""Bundles as users get them, for a regression with a gap."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from demur.offline.config import FitConfig
from demur.offline.fit import fit_bundle
from demur.service.inference.predictor import Predictor
from paper.gaps.data import GapSplit
from paper.gaps.methods import Array, Method, Predictive

# One chosen weight, that its prior does not let move: the added weights have the whole budget.
NO_SUBNETWORK = {"subnetwork_size": 1, "selection": "random", "prior_precision": 1e12}
OPTIONS: dict[str, dict[str, Any]] = {
    "subnetwork": {"added_weights": False},
    "added weights": NO_SUBNETWORK,
    "both (default)": {},
}
TRAINING_ROWS, ROWS = 512, 64


def bundle(network: nn.Module, split: GapSplit, options: Mapping[str, Any], folder: Path, seed: int) -> Method:
    """Fitted with the product's defaults but for `options`, and served; validation rows calibrate it."""
    train, validation = (TensorDataset(*table.tensors()) for table in (split.train, split.validation))
    config = FitConfig(likelihood="regression", seed=seed, **options)
    fit_bundle(
        network,
        DataLoader(train, batch_size=TRAINING_ROWS),
        folder,
        calibration_loader=DataLoader(validation, batch_size=TRAINING_ROWS),
        config=config,
    )
    predictor = Predictor.load(folder, threads=1)
    manifest = predictor.manifest
    assert manifest.noises is not None
    (noise,) = manifest.noises

    def predict(x: Array) -> Predictive:
        parts = np.array_split(x.astype(np.float32), -(-len(x) // ROWS))
        found = [predictor.predict(part) for part in parts]
        mean = np.concatenate([one.mean[:, 0] for one in found]).astype(np.float64)
        variance = np.concatenate([one.variance[:, 0] for one in found]).astype(np.float64)
        score = np.concatenate([one.score for one in found])
        rejected = np.concatenate([np.asarray(one.rejected) for one in found])
        return Predictive(mean, np.sqrt(variance + noise**2), score, rejected)

    facts: dict[str, Any] = {"sigma_noise": noise, "S": manifest.subnetwork_size}
    if (added := manifest.added_weights) is not None:
        facts["prior_variance"] = added.prior_variance / noise**2
    return Method(predict, facts)
