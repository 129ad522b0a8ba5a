"""How soon the metrics of a shadow tell a version that is worse from a usual new fit, on handwritten digits.

A tenth of the requests goes to the shadow, as with DEMUR_SHADOW=digits/2@0.1. A version is told once the 99 %
interval of the share that it answers otherwise, of the share that it decides otherwise, or of the mean distance of its
p-values lies above the limit of the alert DemurShadowDiffers, and as many examples have been compared as that needs.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from benchmarks.core.folders import ROOT
from benchmarks.core.settings import Settings, Values
from demur.offline.fit import fit_bundle
from demur.offline.recipes.load import load_recipe
from demur.service.inference.predictor import Predictor
from demur.service.maths.disagreement import Differences

Array = npt.NDArray[Any]
Data = tuple[Tensor, Tensor]
SHARE, LEAST = 0.1, 200
LIMITS = {"changed": 0.05, "decided": 0.1, "p_value": 0.15}
Z = 2.326  # one-sided, 99 %
ORDERS, MOST = 1000, 20_000  # simulated streams, and examples of each
EPOCHS, BATCH = 40, 64


@dataclass(frozen=True)
class Version:
    """How the second version differs from the one that answers."""

    name: str
    seed: int = 1
    change: Callable[[Data], Data] = lambda data: data
    options: dict[str, Any] = field(default_factory=dict)


def few(data: Data) -> Data:
    return data[0][:100], data[1][:100]


def mislabelled(data: Data) -> Data:
    """A tenth of the labels is another class."""
    images, labels = data
    wrong = torch.arange(len(labels)) % 10 == 0
    return images, torch.where(wrong, (labels + 1) % 10, labels)


def unscaled(data: Data) -> Data:
    """Pixels from 0 to 16, as they are in the files; the service scales them to 0 to 1."""
    return 16 * data[0], data[1]


VERSIONS = (
    Version("another seed: a usual new fit"),
    Version("a posterior over 20 weights, none added", options={"subnetwork_size": 20, "added_weights": False}),
    Version("trained on 100 digits", change=few),
    Version("10 % of the labels wrong", change=mislabelled),
    Version("trained on unscaled pixels", change=unscaled),
)


def run(settings: Settings) -> Values:
    """Each version against the one that answers."""
    digits = load_recipe(ROOT / "examples" / "digits.py").module
    images, labels = (part.numpy() for part in digits.test_data())
    first = predictor(settings, digits, Version("serves", seed=0)).predict(images)
    rows = []
    for version in settings.track(VERSIONS, "Versions", len(VERSIONS)):
        found = predictor(settings, digits, version).predict(images)
        differences = Differences.of(first.compared, found.compared, multilabel=False)
        assert found.probabilities is not None
        shares = {name: total / len(images) for name, total in differences.sums().items()}
        accuracy = float((found.probabilities.argmax(axis=1) == labels).mean())
        rows.append({"name": version.name, "accuracy": accuracy, "shares": shares, "requests": told(differences)})
    return {"share": SHARE, "limits": LIMITS, "rows": rows}


def predictor(settings: Settings, digits: Any, version: Version) -> Predictor:
    """Trained as the recipe does, with the version's change, and fitted."""
    train, held_out = version.change(digits.train_data()), digits.calibration_data()
    if version.change is unscaled:
        held_out = unscaled(held_out)
    torch.manual_seed(version.seed)
    net = digits.network()
    optimiser = torch.optim.AdamW(net.parameters(), lr=2e-3, weight_decay=1e-2)
    for _ in range(settings.choose(EPOCHS, 2)):
        for rows in torch.randperm(len(train[0])).split(BATCH):  # type: ignore[no-untyped-call]
            optimiser.zero_grad()
            nn.functional.cross_entropy(net(train[0][rows]), train[1][rows]).backward()  # type: ignore[no-untyped-call]
            optimiser.step()
    folder = settings.scratch / version.name.split(",")[0].replace(" ", "-").replace("%", "percent")
    fit_bundle(net, train, folder, calibration_loader=held_out, config=digits.config.model_copy(update=version.options))
    return Predictor.load(folder)


def told(differences: Differences) -> dict[str, float | None] | None:
    """Requests until the version is told: the median over simulated streams, and the 95 % quantile; None where half of
    them do not tell it at all."""
    flips = differences.newly_rejected | differences.newly_accepted
    measured = {"changed": differences.changed, "decided": flips, "p_value": differences.p_value_distance}
    rng, found = np.random.default_rng(0), []
    for _ in range(ORDERS):
        order = rng.integers(len(differences), size=MOST)
        found.append(min(_first_above(measured[name][order], limit) for name, limit in LIMITS.items()))
    median, most = np.quantile(found, [0.5, 0.95], method="higher")
    if not math.isfinite(median):
        return None
    return {"median": median / SHARE, "most": most / SHARE if math.isfinite(most) else None}


def _first_above(values: Array, limit: float) -> float:
    """After how many examples the low end of the interval of the mean is above the limit for the first time: of shares
    Wilson's (1927), of distances the normal approximation."""
    n = np.arange(1, len(values) + 1)
    mean = values.cumsum() / n
    if values.dtype == bool:
        width = Z * np.sqrt(mean * (1 - mean) / n + Z**2 / (4 * n**2))
        low = (mean + Z**2 / (2 * n) - width) / (1 + Z**2 / n)
    else:
        low = mean - Z * np.sqrt(np.maximum(0, np.square(values).cumsum() / n - mean**2) / n)
    above = (low > limit) & (n >= LEAST)
    return float(n[above.argmax()]) if above.any() else math.inf
