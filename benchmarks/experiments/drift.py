"""How soon the test for drift notices a change, and how often it is wrong, against windows of KS and PSI."""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch.utils.data import DataLoader, TensorDataset

from benchmarks.core.settings import Settings, Values
from benchmarks.datasets import mnist
from benchmarks.experiments.corruptions import rotation
from benchmarks.experiments.frontier.data import load
from benchmarks.experiments.frontier.networks import EPOCHS, trained
from demur.offline.config import FitConfig
from demur.offline.fit import fit_bundle
from demur.service.inference.predictor import Predictor
from demur.service.maths.exchangeability import DriftTest
from demur.service.series.drift_sample import DriftSample

Array = npt.NDArray[Any]
Detector = Callable[[Array, Array], int | None]  # reference and stream -> requests until the first alarm
LEVEL, RATE = 100.0, 0.01
REFERENCE, QUIET, ORDERS = 1000, 1000, 20
WINDOW, BINS, PROMISED = 500, 10, 20_000
ANGLES, SHARES = (15, 30, 45), (0.01, 0.05, 0.2)
SIZE, EXAMPLES, BATCH = 750, 10_000, 200
BUSY, MOST_EXAMPLES = 128, 60_000
TOGETHER = 1000  # simulated requests that the test takes at once


def run(settings: Settings) -> Values:
    """False alarms of simulated requests without drift; delays on MNIST."""
    ordinary, changed = _scores(settings)
    detectors = {"betting": betting, "Kolmogorov-Smirnov": _windows(distance), "PSI": _windows(stability)}
    rng = np.random.default_rng(0)
    orders = settings.choose(ORDERS, 2)
    rows = []
    for kind, share, scores in changed:
        delays = {
            label: [delay_of(detect, ordinary, scores, share, rng) for _ in range(orders)]
            for label, detect in detectors.items()
        }
        rows.append({"name": kind, "share": share, "delays": {label: _summary(d) for label, d in delays.items()}})
    return {
        "false_alarms": false_alarms(settings, rng),
        "copies": copies(settings),
        "few_foreign": few_foreign(settings),
        "rows": rows,
    }


def _scores(settings: Settings) -> tuple[Array, list[tuple[str, float, Array]]]:
    """Scores of ordinary test digits, and for each change its name, its share of the traffic, and scores."""
    problem = load("mnist", 100)
    model = trained(problem, 0, 0.0, "full", EPOCHS["mnist"], settings.track)
    loader = DataLoader(TensorDataset(*(part[:EXAMPLES] for part in problem.train)), batch_size=256)
    config = FitConfig(subnetwork_size=SIZE, selection="auto")
    fit_bundle(model, loader, settings.scratch / "bundle", calibration_loader=[problem.held_out], config=config)
    predictor = Predictor.load(settings.scratch / "bundle")

    def scores(pixels: torch.Tensor) -> Array:
        inputs = torch.split(mnist.normalise(pixels), BATCH)
        return np.concatenate([predictor.predict(part.numpy()).score for part in inputs])

    digits, clothes = (mnist.images(name, "t10k") for name in ("mnist", "fashion-mnist"))
    foreign = scores(clothes)
    turned = [(f"turned by {angle} degrees", 1.0, scores(rotation(angle)(digits))) for angle in ANGLES]
    return scores(digits), [*turned, *((f"Fashion-MNIST, {100 * share:g} %", share, foreign) for share in SHARES)]


def delay_of(detect: Detector, ordinary: Array, changed: Array, share: float, rng: np.random.Generator) -> float:
    """Requests from the change, after `QUIET` ordinary ones, to the first alarm; infinite without one, and not a number
    where the alarm came before."""
    mixed = rng.permutation(ordinary)
    reference, stream = mixed[:REFERENCE], mixed[REFERENCE:].copy()
    after = np.flatnonzero(rng.random(len(stream)) < share)
    after = after[after >= QUIET]
    stream[after] = rng.choice(changed, len(after), replace=False)
    found = detect(reference, stream)
    if found is None:
        return np.inf
    return float(found - QUIET) if found > QUIET else np.nan


def betting(reference: Array, stream: Array) -> int | None:
    """The service's own test."""
    test = DriftTest(reference, LEVEL, np.random.default_rng(0))
    return next((i + 1 for i in range(len(stream)) if test.observe(stream[i : i + 1])), None)


def _windows(statistic: Callable[[Array, Array], float]) -> Detector:
    """Windows of requests, one after the other, against the reference.

    The limit is passed in `RATE` of simulated streams of `PROMISED` requests without drift.
    """
    rng = np.random.default_rng(1)
    most = [
        max(statistic(reference, window) for window in rng.random((PROMISED // WINDOW, WINDOW)))
        for reference in rng.random((int(3 / RATE), REFERENCE))
    ]
    limit = float(np.quantile(most, 1 - RATE))

    def detect(reference: Array, stream: Array) -> int | None:
        ends = range(WINDOW, len(stream) + 1, WINDOW)
        return next((end for end in ends if statistic(reference, stream[end - WINDOW : end]) > limit), None)

    return detect


def distance(reference: Array, window: Array) -> float:
    """The Kolmogorov-Smirnov statistic: the largest distance between the distribution functions."""
    places = np.concatenate([reference, window])
    below = [np.sort(part).searchsorted(places, "right") / len(part) for part in (reference, window)]
    return float(np.abs(below[0] - below[1]).max())


def stability(reference: Array, window: Array) -> float:
    """The population stability index over the reference's deciles."""
    edges = np.quantile(reference, np.linspace(0, 1, BINS + 1)[1:-1])
    shares = [np.bincount(edges.searchsorted(part), minlength=BINS) / len(part) for part in (reference, window)]
    expected, found = (np.maximum(share, 1e-4) for share in shares)
    return float(((found - expected) * np.log(found / expected)).sum())


def false_alarms(settings: Settings, rng: np.random.Generator) -> Values:
    """The share of tests that alarm without drift, each in a stream of a million requests."""
    runs, requests = settings.choose((100, 1_000_000), (3, 1000))
    alarmed = 0
    for _ in settings.track(range(runs), "Requests without drift"):
        test = DriftTest(rng.random(REFERENCE), LEVEL, rng)
        alarmed += any(test.observe(rng.random(TOGETHER)) for _ in range(requests // TOGETHER))
    return {"tests": runs, "requests": requests, "share": alarmed / runs}


def few_foreign(settings: Settings) -> list[Values]:
    """Examples of a client, one a request and 50 a second, until the alarm, when one in so many is foreign: beside a
    client that sends `BUSY` ordinary examples 16 times a second, and without it."""
    sizes, streams = settings.choose(((180, 1000, 10_000), 10), ((180,), 1))
    shares = settings.choose((10, 20, 50, 100), (10,))
    rows = []
    for size in sizes:
        for one_in in shares:
            for busy in (False, True):
                delays = [_until_alarm(size, one_in, busy, seed) for seed in settings.track(range(streams), "Foreign")]
                rows.append({"held_out": size, "one_in": one_in, "busy": busy, "delays": _summary(delays)})
    return rows


def _until_alarm(size: int, one_in: int, busy: bool, seed: int) -> float:
    """Ordinary scores are uniform, foreign ones lie above them all."""
    rng = np.random.default_rng(seed)
    held_out = rng.random(size)
    test, sample = DriftTest(held_out, LEVEL, rng), DriftSample(held_out, rng)
    for window in range(MOST_EXAMPLES * 2 // 5):
        for _ in range(2 + window % 2):  # 50 a second, in windows of 50 ms
            score = rng.random() + (rng.random() < 1 / one_in)
            sample.offer(np.array([[score]]), np.array([score]))
        if busy and window % 5 != 4:
            scores = rng.random(BUSY)
            sample.offer(scores[:, None], scores)
        if test.observe(sample.take()):
            return (window + 1) * 2.5
    return np.inf


def copies(settings: Settings) -> Values:
    """The share of tests that alarm while each ordinary example comes ten times, in a row or after all others."""
    runs, examples = settings.choose((50, 100_000), (2, 100))
    rng, found = np.random.default_rng(2), {}
    for name, repeat in (("in a row", np.repeat), ("after all others", np.tile)):
        alarms = 0
        for _ in settings.track(range(runs), f"Copies {name}"):
            held_out = rng.random(REFERENCE)
            test, sample = DriftTest(held_out, LEVEL, rng), DriftSample(held_out, rng)
            stream, alarmed = repeat(rng.random(examples), 10), 0
            for part in np.array_split(stream, len(stream) // 5):
                sample.offer(part[:, None], part)
                alarmed += test.observe(sample.take())
            alarms += alarmed > 0
        found[name] = alarms / runs
    return {"tests": runs, "requests": 10 * examples, "share": found}


def _summary(delays: list[float]) -> Values:
    """Median over the orders, how many had no alarm, and how many had one before the change."""
    values = np.array(delays)
    found = values[np.isfinite(values)]
    return {
        "median": float(np.median(values[~np.isnan(values)])) if len(found) > len(values) / 2 else None,
        "missed": int(np.isinf(values).sum()),
        "early": int(np.isnan(values).sum()),
        "orders": len(values),
    }
