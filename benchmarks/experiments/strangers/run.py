"""Plain network, best temperature and default bundle on six data sets that were not chosen for a strength, and on two
with rare events.

Nothing is configured but the seed. The temperature is the likeliest on all held-out examples, of which the bundle takes
one half to tune and the other to set its threshold. Differences are those of the same examples, bundle minus
temperature, with the standard error of their mean over all seeds' test examples.
"""

import math
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.core.settings import Settings, Values
from benchmarks.experiments.frontier.methods import in_batches
from benchmarks.experiments.frontier.temperatures import Logits, tempered
from benchmarks.experiments.kept import run_once
from benchmarks.experiments.strangers.data import DATA, load
from benchmarks.experiments.strangers.events import EVENTS, of_events
from benchmarks.experiments.strangers.networks import NETWORKS, trained
from demur.offline.config import FitConfig
from demur.offline.data.foreigners import is_judged, obvious_foreigners
from demur.offline.data.likelihood import class_log_likelihood
from demur.offline.evaluation.diagnostics import auroc, expected_calibration_error
from demur.offline.fit import fit_bundle
from demur.service.inference.predictor import Predictor
from demur.service.maths.predictive import entropy, softmax

Array = npt.NDArray[Any]
NAMES = (*DATA, *EVENTS)
SEEDS = 5
FOREIGN = 200  # of each kind
TOO_LOW = 2.0  # standard errors below a temperature: a loss that noise does not explain


def one(name: str, seed: int, passes: int | None, scratch: Path) -> Values:
    """One split and network: the quality of each method, and what the bundle rejects."""
    problem = EVENTS[name](seed) if name in EVENTS else load(name, seed)
    model, folder = trained(name, problem.train, seed, passes), scratch / f"{name}-{seed}"
    config = FitConfig(seed=seed)
    fit_bundle(model, problem.train, folder, calibration_loader=problem.held_out, config=config)
    predictor, logits = Predictor.load(folder), Logits(model)
    temperature = tempered([logits], problem.held_out)
    classes = problem.test[1].numpy()
    found: Values = {"data": name, "seed": seed, "held_out": len(problem.held_out[1]), "test": len(classes)}
    for where, x in {"ordinary": problem.test[0], "disturbed": problem.disturbed}.items():
        parts = [predictor.predict(part.numpy()) for part in in_batches(x)]
        served = _together([part.probabilities for part in parts])
        probabilities = {"plain": softmax(logits(x)), "temperature": temperature.probabilities(x), "default": served}
        likelihood = {method: class_log_likelihood(p, classes) for method, p in probabilities.items()}
        wrong = served.argmax(1) != classes
        found[where] = {
            "log_likelihood": {method: float(values.mean()) for method, values in likelihood.items()},
            "ece": {method: expected_calibration_error(p, classes) for method, p in probabilities.items()},
            "wrong": float(wrong.mean()),
            "auroc_wrong": {method: _auroc(entropy(p), wrong) for method, p in probabilities.items()},
            "labels_differ": float((served.argmax(1) != logits(x).argmax(1)).mean()),
            "rejected": float(np.mean([part.rejected.mean() for part in parts])),
            "gain": _difference(likelihood["default"] - likelihood["temperature"]),
        }
        if problem.event_share is not None:
            half = _together([part.map_probabilities for part in parts])
            methods = probabilities | {"its own temperature": half}
            found[where]["events"] = of_events(methods, problem.test[1], problem.event_share)
    foreign = obvious_foreigners(problem.test[0][:FOREIGN], 0)
    rejected = {kind: float(predictor.predict(x.numpy()).rejected.mean()) for kind, x in foreign.items()}
    return found | {"foreign": {kind: share for kind, share in rejected.items() if is_judged(kind)}}


def _together(parts: list[Array | None]) -> Array:
    return np.concatenate([part for part in parts if part is not None])


def _auroc(values: Array, wrong: Array) -> float | None:
    """None where everything is right, or wrong."""
    return auroc(values[~wrong], values[wrong]) if 0 < wrong.sum() < len(wrong) else None


def _difference(values: Array) -> dict[str, float]:
    return {"mean": float(values.mean()), "error": float(values.std(ddof=1) / math.sqrt(len(values)))}


def summarise(runs: list[Values]) -> list[Values]:
    """A row for each data set: means over the seeds, and whether the default loses to a temperature beyond noise."""
    rows = []
    for name in dict.fromkeys(run["data"] for run in runs):
        own = [run for run in runs if run["data"] == name]
        row: Values = {"data": name, "seeds": len(own), "held_out": own[0]["held_out"], "test": own[0]["test"]}
        for where in ("ordinary", "disturbed"):
            row[where] = _mean([run[where] for run in own])
            errors = [run[where]["gain"]["error"] for run in own]
            row[where]["gain"]["error"] = math.sqrt(float(np.mean(np.square(errors))) / len(own))
            row[where]["ece_error"] = _error([run[where]["ece"] for run in own])
            if "events" in row[where]:
                precisions = [run[where]["events"]["average_precision"] for run in own]
                row[where]["events"]["average_precision_error"] = _error(precisions)
        row["foreign"] = _mean([run["foreign"] for run in own])
        rows.append(row | {"loses": losses(row)})
    return rows


def losses(row: Values) -> list[str]:
    """In what the default is worse than a temperature by more than `TOO_LOW` standard errors."""
    found = []
    for where in ("ordinary", "disturbed"):
        part = row[where]
        if part["gain"]["mean"] < -TOO_LOW * part["gain"]["error"]:
            found.append(f"log-likelihood, {where}")
        if part["ece"]["default"] - part["ece"]["temperature"] > TOO_LOW * part["ece_error"]:
            found.append(f"calibration error, {where}")
    return found


def _mean(values: list[Any]) -> Any:
    """Of nested mappings, entry by entry; of the runs that have one."""
    if isinstance(values[0], dict):
        return {key: _mean([value[key] for value in values]) for key in values[0]}
    there = [value for value in values if value is not None]
    return float(np.mean(there)) if there else None


def _error(own: list[Values]) -> float:
    """Standard error over the seeds of the default's difference from the temperature."""
    differences = [found["default"] - found["temperature"] for found in own]
    return float(np.std(differences, ddof=1)) / math.sqrt(len(own)) if len(own) > 1 else math.inf


def run(settings: Settings) -> Values:
    """`--rows words` measures one of the data sets; an interrupted run goes on where it stopped."""
    names, seeds = settings.names(NAMES, ("penguins",)), settings.choose(settings.seeds or SEEDS, 1)
    passes = settings.choose(None, 2)
    runs = [
        run_once(
            f"strangers-{name}-{seed}" + ("-quick" if settings.quick else ""),
            {"passes": passes or NETWORKS[name][1]},
            partial(one, name, seed, passes, settings.scratch),
        )
        for name in names
        for seed in range(seeds)
    ]
    return {"rows": settings.with_earlier("strangers", "data", summarise(runs), NAMES)}
