"""Intervals of an ordinary network by one noise for all, by the default, and by MAPIE's residual-normalised scores.

The default fits the noise to the input where held-out examples tell one. "One noise" is the same fit with the root mean
square of the held-out residuals for all inputs. MAPIE (the package, where it is installed) conformalises the network's
residuals divided by what a forest, fitted to their logarithms on the same examples, expects of them: with the linear
model of its default the mean width on diamonds is not finite. It gives no distribution, so no likelihood.
"""

import importlib.util
import math
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.ensemble import RandomForestRegressor
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.core.settings import Settings, Values
from benchmarks.experiments.frontier.methods import in_batches
from benchmarks.experiments.kept import run_once
from benchmarks.experiments.regression.data import HELD_OUT, TABLES, Examples, Table, load
from demur.offline.config import FitConfig
from demur.offline.data.likelihood import gaussian_log_likelihood
from demur.offline.fit import fit_bundle
from demur.service.inference.predictor import Predictor

Array = npt.NDArray[Any]
FEW = 40
LINES = {name: (name, HELD_OUT) for name in TABLES} | {f"diamonds-{FEW}": ("diamonds", FEW)}
SEEDS, FIFTHS = 3, 5
LEVEL = 0.95  # that of a service by default
WIDTH, BATCH, LEARNING_RATE, WEIGHT_DECAY = 64, 64, 3e-3, 1e-4
STEPS = 3_000
Interval = tuple[Array, Array]


def trained(examples: Examples, seed: int, steps: int) -> nn.Module:
    """Two hidden layers, by Adam; in eval mode."""
    torch.manual_seed(seed)
    x, y = examples
    hidden = (nn.Linear(x.shape[1], WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU())
    model = nn.Sequential(*hidden, nn.Linear(WIDTH, 1)).train()
    optimiser = torch.optim.Adam(model.parameters(), LEARNING_RATE, weight_decay=WEIGHT_DECAY)
    for _ in range(steps):
        rows = torch.randint(len(x), (BATCH,))
        optimiser.zero_grad()
        F.mse_loss(model(x[rows]), y[rows]).backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    return model.eval()


def one(name: str, held_out: int, seed: int, steps: int, scratch: Path) -> Values:
    """One split and network: what each method says of the test rows."""
    table = load(name, seed, held_out)
    model = trained(table.train, seed, steps)
    with torch.no_grad():
        mean, residuals = model(table.test[0]).numpy(), model(table.held_out[0]) - table.held_out[1]
    methods: Values = {}
    options: dict[str, Values] = {"one noise": {"sigma_noise": float(residuals.square().mean().sqrt())}, "default": {}}
    for method, given in options.items():
        folder = scratch / f"{name}-{held_out}-{seed}-{method}".replace(" ", "-")
        config = FitConfig(likelihood="regression", seed=seed, **given)
        fit_bundle(model, table.train, folder, calibration_loader=table.held_out, config=config)
        predictor = Predictor.load(folder)
        likelihood, interval = _served(predictor, table.test)
        by_input = predictor.manifest.input_noise is not None
        methods[method] = measured(interval, mean, table.test[1]) | {
            "log_likelihood": likelihood,
            "by_input": by_input,
        }
    if importlib.util.find_spec("mapie"):
        forest = RandomForestRegressor(min_samples_leaf=10, random_state=seed)
        methods["MAPIE"] = measured(conformal(model, table, forest), mean, table.test[1])
    else:
        print("MAPIE is not installed, and left out: pip install mapie")
    sizes = {"held_out": len(table.held_out[0]), "test": len(mean)}
    return {"seed": seed, **sizes, "methods": methods}


def _served(predictor: Predictor, examples: Examples) -> tuple[float, Interval]:
    """The mean log-likelihood, and the intervals as they are served."""
    parts = [predictor.predict(part.numpy()) for part in in_batches(examples[0])]
    mean = np.concatenate([part.mean for part in parts])
    std = np.concatenate([part.std for part in parts if part.std is not None])
    ends = [predictor.decision.intervals(part) for part in parts]
    low, high = (np.concatenate([pair[side] for pair in ends]) for side in (0, 1))
    return float(gaussian_log_likelihood(mean, std, examples[1].numpy()).mean()), (low, high)


class _Fitted(RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """The network as scikit-learn has estimators."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.is_fitted = True

    def fit(self, x: Array, y: Array) -> "_Fitted":  # noqa: ARG002  as scikit-learn asks
        return self

    def predict(self, x: Array) -> Array:
        with torch.no_grad():
            found: Array = self.model(torch.as_tensor(x, dtype=torch.float32)).numpy().ravel().astype(np.float64)
        return found


def conformal(model: nn.Module, table: Table, estimator: Any) -> Interval:
    """The intervals of MAPIE, (n, 1) each end."""
    from mapie.conformity_scores import ResidualNormalisedScore  # type: ignore[import-not-found,import-untyped,unused-ignore]
    from mapie.regression import SplitConformalRegressor  # type: ignore[import-not-found,import-untyped,unused-ignore]

    x, y = (part.numpy().astype(np.float64) for part in table.held_out)
    score = ResidualNormalisedScore(residual_estimator=estimator)
    method = SplitConformalRegressor(_Fitted(model), LEVEL, conformity_score=score)
    found = method.conformalize(x, y.ravel()).predict_interval(table.test[0].numpy().astype(np.float64))[1]
    return found[:, 0], found[:, 1]


def measured(interval: Interval, mean: Array, targets: Tensor) -> Values:
    """Mean width and coverage, over all and by fifths of the prediction, ascending; (n, 1) each."""
    low, high = (end.reshape(-1) for end in interval)
    held = (low <= targets.numpy()[:, 0]) & (targets.numpy()[:, 0] <= high)
    ordered = held[np.argsort(mean[:, 0], kind="stable")]
    fifths = [float(part.mean()) for part in np.array_split(ordered, FIFTHS)]
    return {"width": float((high - low).mean()), "coverage": float(held.mean()), "fifths": fifths}


def summarise(name: str, runs: list[Values]) -> Values:
    """Means over the seeds, with standard errors."""
    row: Values = {"data": name, "seeds": len(runs), "held_out": runs[0]["held_out"], "test": runs[0]["test"]}
    methods = {}
    for method in runs[0]["methods"]:
        own = [run["methods"][method] for run in runs]
        found: Values = {}
        for quantity in ("log_likelihood", "width", "coverage"):
            if quantity in own[0]:
                values = [each[quantity] for each in own]
                found |= {quantity: float(np.mean(values)), f"{quantity}_error": _error(values)}
        methods[method] = found | {
            "fifths": np.mean([each["fifths"] for each in own], axis=0).tolist(),
            "by_input": sum(each.get("by_input", False) for each in own),
        }
    gains = [
        run["methods"]["default"]["log_likelihood"] - run["methods"]["one noise"]["log_likelihood"] for run in runs
    ]
    return row | {"gain": float(np.mean(gains)), "gain_error": _error(gains), "methods": methods}


def _error(values: list[float]) -> float | None:
    """Of their mean."""
    return float(np.std(values, ddof=1)) / math.sqrt(len(values)) if len(values) > 1 else None


def run(settings: Settings) -> Values:
    """`--rows wine` measures one of the tables; an interrupted run goes on where it stopped."""
    names, seeds = settings.names(tuple(LINES), ("diabetes",)), settings.choose(settings.seeds or SEEDS, 1)
    steps = settings.choose(STEPS, 50)
    rows = []
    for line in names:
        name, held_out = LINES[line]
        runs = [
            run_once(
                f"regression-{name}-{held_out}-{seed}" + ("-quick" if settings.quick else ""),
                {"steps": steps},
                partial(one, name, held_out, seed, steps, settings.scratch),
            )
            for seed in range(seeds)
        ]
        rows.append(summarise(line, runs))
    return {"rows": settings.with_earlier("regression", "data", rows, tuple(LINES))}
