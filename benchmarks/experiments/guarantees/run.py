"""Whether the service's guarantees hold: rates, certified accuracy, prediction sets and intervals, on real data.

One bundle is fitted for each data set, and predicts a pool of labelled examples once. Splits of this pool are drawn
again and again, without another fit, and decided by the service's own code.
"""

import numpy as np
import torch

from benchmarks.core.settings import Settings, Values
from benchmarks.experiments.guarantees import splits
from benchmarks.experiments.guarantees.data import CLASSES, VALUES, pool, value_pool

SPLITS, SETS = 1000, 200  # sets take the longest
QUICK = ("digits", "heavy-tailed")  # these need no data folder


def run(settings: Settings) -> Values:
    """`--rows MNIST` measures one of the data sets again."""
    torch.set_num_threads(1)
    order = (*CLASSES, *VALUES)
    names = settings.names(order, QUICK)
    rows = [(_classes if name in CLASSES else _values)(name, settings) for name in names]
    return {"rows": settings.with_earlier("guarantees", "name", rows, order)}


def _classes(name: str, settings: Settings) -> Values:
    found, rng = pool(name, settings), np.random.default_rng(0)
    count, of_sets = settings.choose((SPLITS, SETS), (5, 5))
    track = settings.track
    return {
        "name": name,
        "examples": len(found.score),
        "calibration": found.calibration,
        "tuning": found.tuning,
        "accuracy": float((found.probabilities.argmax(1) == found.targets).mean()),
        "splits": count,
        "splits_of_sets": of_sets,
        "rates": splits.rates(found, track(range(count), f"{name}: rates", count), rng),
        "certificates": splits.certificates(found, track(range(count), f"{name}: certificates", count), rng),
        "sets": splits.sets(found, track(range(of_sets), f"{name}: sets", of_sets), rng),
    }


def _values(name: str, settings: Settings) -> Values:
    found, rng = value_pool(name, settings), np.random.default_rng(0)
    count = settings.choose(SPLITS, 5)
    return {
        "name": name,
        "examples": len(found.mean),
        "calibration": found.calibration,
        "splits": count,
        "rates": splits.value_rates(found, settings.track(range(count), f"{name}: rates", count), rng),
        "intervals": splits.intervals(found, settings.track(range(count), f"{name}: intervals", count), rng),
    }
