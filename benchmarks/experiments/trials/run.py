"""Ideas tried on the networks of `frontier`: are two prior precisions better than one, a second mean than none, and for
added weights the Hessian of the outputs than the identity?"""

import functools
import json
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from benchmarks.core.settings import Settings, Values
from benchmarks.experiments.frontier.data import NAMES, Problem, load
from benchmarks.experiments.frontier.networks import EPOCHS, trained
from benchmarks.experiments.kept import run_once
from benchmarks.experiments.trials import hessian, second_mean, spectrum
from benchmarks.experiments.trials.reading import Reading
from offline.runtime.progress import Track

SEEDS = 3
SMALL = ("mnist", "fashion")  # whose small second network trains in seconds
SPECTRUM, SECOND_MEAN, CURVATURE = "spectrum", "second mean", "curvature"
CONTROLS = {
    SPECTRUM: (spectrum.ONE,),
    SECOND_MEAN: (second_mean.PLAIN, second_mean.TEMPERED),
    CURVATURE: (hessian.IDENTITY,),
}
Row = dict[str, float]


@dataclass(frozen=True)
class Scale:
    """How many images: to test on usual ones, under each shift, to read for what is fitted to training images, and to
    train the networks on (None: all); and epochs."""

    test: int = 5000
    shifted: int = 1000
    read: int = 20_000  # as many as a fit reads
    train: int | None = None
    epochs: int | None = None


FULL, QUICK = Scale(), Scale(test=60, shifted=60, train=1500, epochs=1)


def one_network(name: str, seed: int, scale: Scale, tag: str, track: Track) -> dict[str, Any]:
    """Two precisions and a second mean on the network of one seed: trial -> part -> row -> its means."""
    problem, reading = _read(name, seed, scale, tag, track)
    epochs = scale.epochs or EPOCHS[name]
    small = second_mean.small_network(problem, seed, tag, epochs, track) if name in SMALL else None
    return {
        "network": name,
        "seed": seed,
        SPECTRUM: spectrum.rows(reading, seed),
        SECOND_MEAN: {"": second_mean.rows(reading, problem, small)},
    }


def curvatures(name: str, seed: int, scale: Scale, tag: str, track: Track) -> dict[str, Any]:
    """The curvatures of added weights on the network of one seed, as `one_network` has its trials."""
    return {CURVATURE: {"": hessian.rows(_read(name, seed, scale, tag, track)[1])}}


def _read(name: str, seed: int, scale: Scale, tag: str, track: Track) -> tuple[Problem, Reading]:
    problem = load(name, scale.test)
    inputs, targets = problem.train
    problem = replace(problem, train=(inputs[: scale.train], targets[: scale.train]))
    model = trained(problem, seed, 0.0, tag, scale.epochs or EPOCHS[name], track)
    return problem, Reading.of(model, problem, scale.read, scale.shifted)


def summarise(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Trial -> network -> part -> row -> quantity -> mean, standard deviation, and the same of the gain over the seeds.

    The gain is that over the trial's control; for a second mean, on usual images, that over the better of its two.
    """
    return {
        trial: {
            name: _over_seeds([run[trial] for run in runs if run["network"] == name], controls)
            for name in dict.fromkeys(run["network"] for run in runs)
        }
        for trial, controls in CONTROLS.items()
    }


def _over_seeds(seeds: list[dict[str, dict[str, Row]]], controls: tuple[str, ...]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for part, rows in seeds[0].items():
        found[part] = {}
        for label, row in rows.items():
            quantities = {}
            for quantity in row:
                values = np.array([one[part][label][quantity] for one in seeds])
                control = [[one[part][other].get(quantity, np.nan) for other in controls] for one in seeds]
                gain = values - np.max(control, axis=1)
                quantities[quantity] = {"mean": values.mean(), "std": values.std()}
                if not np.isnan(gain).any():
                    quantities[quantity] |= {"gain": gain.mean(), "gain_std": gain.std()}
            found[part][label] = quantities
    return found


def run(settings: Settings) -> Values:
    """Train and judge what is not in the cache; `--rows mnist` runs one of the networks and keeps the others."""
    names, (scale, tag) = settings.names(NAMES, NAMES), settings.choose((FULL, "full"), (QUICK, "quick"))
    seeds = settings.choose(settings.seeds or SEEDS, 1)
    runs = []
    for name in names:
        for seed in range(seeds):
            found: dict[str, Any] = {}
            for key, trial in (("trials", one_network), ("trials-curvature", curvatures)):
                made = functools.partial(trial, name, seed, scale, tag, settings.track)
                outcome = run_once(f"{key}-{name}-{seed}-{tag}", json.loads(json.dumps(asdict(scale))), made)
                found = {**outcome, **found, "seconds": outcome["seconds"] + found.get("seconds", 0.0)}
            runs.append(found)
    runs = [*(run for run in settings.earlier("trials", "runs") or [] if run["network"] not in names), *runs]
    runs.sort(key=lambda run: (NAMES.index(run["network"]), run["seed"]))
    return {"summary": summarise(runs), "runs": runs}
