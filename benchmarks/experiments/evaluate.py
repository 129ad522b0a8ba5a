"""`probity evaluate` and `probity score` on many examples: time over that of the plain network, and memory.

The examples are the training digits of MNIST, because there are 60,000: what the evaluation finds is not used.
"""

import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.core.harness import call
from benchmarks.core.memory import peak_bytes, reset_peak, resident_bytes
from benchmarks.core.settings import Settings, Values
from benchmarks.datasets.mnist_tensors import images, labels, normalise
from benchmarks.experiments.frontier.networks import DigitNetwork, trained_on
from probity.offline.config import FitConfig
from probity.offline.evaluation.evaluate import evaluate
from probity.offline.fit import fit_bundle
from probity.offline.runtime.progress import silent
from probity.scoring.job import score_file
from probity.service.inference.predictor import Predictor

TRAINED, HELD_OUT, EPOCHS, WEIGHTS = 20_000, 2_000, 3, 750
BATCH, ROUNDS, THREADS = 256, 5, 1
COUNTS, QUICK_COUNTS = (15_000, 30_000, 60_000), (256, 512, 1024)
EVALUATE, FORMATS = "evaluate", (".jsonl", ".csv", ".parquet")


def run(settings: Settings) -> Values:
    """The bundle, then every work in turns, then each alone in a process for each number of examples."""
    counts = settings.choose(COUNTS, QUICK_COUNTS)
    given = {"folder": str(settings.scratch), "counts": counts}
    made = call("benchmarks.experiments.evaluate:prepare", given, settings.threads)
    rounds = settings.choose(ROUNDS, 1)
    timed = call("benchmarks.experiments.evaluate:timed", given | {"rounds": rounds}, THREADS)
    alone = [{"work": work, "examples": count} for work in (EVALUATE, *FORMATS) for count in counts]
    memory = [
        one | call("benchmarks.experiments.evaluate:remembered", given | one, THREADS)
        for one in settings.track(alone, "Memory", len(alone))
    ]
    return {**made, "batch": BATCH, "rounds": rounds, "examples": counts[-1], "rows": timed["rows"], "memory": memory}


def prepare(values: Values) -> Values:
    """Fit the bundle, and write the inputs of each number of examples and the targets to files."""
    folder, counts = Path(values["folder"]), values["counts"]
    pixels, digits = normalise(images("mnist", "train")), labels("mnist", "train")
    chosen, held_out = slice(0, TRAINED), slice(TRAINED, TRAINED + HELD_OUT)
    torch.manual_seed(0)
    examples = (pixels[chosen], digits[chosen])
    model = trained_on("evaluate", DigitNetwork(), "mnist", examples, EPOCHS, silent)
    train = list(zip(*(torch.split(part[chosen], BATCH) for part in (pixels, digits)), strict=True))
    config = FitConfig(subnetwork_size=WEIGHTS, selection="auto")
    fit_bundle(
        model, train, folder / "bundle", calibration_loader=[(pixels[held_out], digits[held_out])], config=config
    )
    for count in counts:
        np.save(inputs_of(folder, count), pixels[:count].numpy())
    np.save(folder / "targets.npy", digits[: counts[-1]].numpy())
    manifest = Predictor.load(folder / "bundle").manifest
    return {"chosen": manifest.selection.explanation, "S": manifest.subnetwork_size, "D": manifest.parameter_count}


def inputs_of(folder: Path, count: int) -> Path:
    """The file of so many inputs."""
    return folder / f"inputs-{count}.npy"


def batches(folder: Path, count: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Inputs and targets, a batch at a time from disk."""
    targets = np.load(folder / "targets.npy")
    for first in range(0, count, BATCH):
        # Mapped anew for each batch: the pages of a mapping count as the process's memory once they were read.
        inputs = np.load(inputs_of(folder, count), mmap_mode="r")[first : first + BATCH]
        yield torch.from_numpy(np.array(inputs)), torch.from_numpy(targets[first : first + len(inputs)])


def work(name: str, predictor: Predictor, folder: Path, count: int) -> Callable[[], object]:
    """What is measured: `evaluate`, or `score` into a file with the suffix `name`."""
    if name == EVALUATE:
        return lambda: evaluate(predictor, batches(folder, count))
    out, path = folder / f"rows{name}", inputs_of(folder, count)
    return lambda: score_file(predictor, path, out, batch_size=BATCH, force=True)


def timed(values: Values) -> Values:
    """Seconds of each work, and its processor time over that of the plain network, round by round in turns."""
    folder = Path(values["folder"])
    predictor = Predictor.load(folder / "bundle", threads=THREADS, plain_too=True)
    for one in _works(predictor, folder, values["counts"][0]).values():
        one()  # the first calls allocate memory and fill caches
    works = _works(predictor, folder, values["counts"][-1])
    rounds = [{name: _seconds(one) for name, one in works.items()} for _ in range(values["rounds"])]
    plain = [one["plain network"][1] for one in rounds]
    return {"rows": [_row(name, [one[name] for one in rounds], plain) for name in works]}


def _works(predictor: Predictor, folder: Path, count: int) -> dict[str, Callable[[], object]]:
    alone: dict[str, Callable[[], object]] = {
        "plain network": lambda: [predictor.mean(x.numpy()) for x, _ in batches(folder, count)],
        "predictions": lambda: [predictor.predict(x.numpy()) for x, _ in batches(folder, count)],
    }
    return alone | {name: work(name, predictor, folder, count) for name in (EVALUATE, *FORMATS)}


def _row(name: str, found: list[tuple[float, float]], plain: list[float]) -> dict[str, Any]:
    over = [processor / base for (_, processor), base in zip(found, plain, strict=True)]
    return {
        "work": name,
        "seconds": statistics.median(seconds for seconds, _ in found),
        "processor_seconds": statistics.median(processor for _, processor in found),
        "over_plain": statistics.median(over),
        "over_plain_rounds": over,
    }


def _seconds(one: Callable[[], object]) -> tuple[float, float]:
    """By the clock, and of the processor."""
    clock, processor = time.perf_counter(), time.process_time()
    one()
    return time.perf_counter() - clock, time.process_time() - processor


def remembered(values: Values) -> Values:
    """How far the resident set grows above that of the open predictor, which has predicted one batch."""
    folder, count = Path(values["folder"]), values["examples"]
    predictor = Predictor.load(folder / "bundle", threads=THREADS)
    inputs, _ = next(batches(folder, count))
    predictor.predict(inputs.numpy())
    reset_peak()
    before = resident_bytes()
    work(values["work"], predictor, folder, count)()
    return {"before_bytes": before, "growth_bytes": max(0, peak_bytes() - before)}
