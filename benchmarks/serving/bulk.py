"""Ray Data with one actor and with two beside `demur score`: rows a second, and whether they agree to the bit."""

import logging
import os
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.core.settings import Settings, Values
from benchmarks.serving.digits import rows
from benchmarks.serving.fitted import bundle
from demur import BatchScorer, Predictor
from demur.scoring.job import score_file

BATCH, ACTORS = 256, (1, 2)
READERS = 1  # what is left to Ray's readers, in its own count of processors
ALONE = "demur score"


def run(settings: Settings) -> Values:
    """In rounds, each from a Parquet file to a Parquet file; actors are started and the bundle is opened within."""
    count, times = BATCH * settings.choose(1200, 8), settings.choose(3, 1)
    table = written(settings.scratch / "digits.parquet", count)
    folder = bundle()
    ways: dict[str, Callable[[Path], pd.DataFrame]] = {ALONE: partial(scored, folder, table)}
    with ray_running() as ray:
        ways |= {f"Ray, actors: {actors}": partial(mapped, ray, folder, table, actors) for actors in ACTORS}
        rounds: list[dict[str, float]] = []
        expected, equal = None, True
        for number in settings.track(range(times), "Rounds", times):
            turn = {}
            for name in list(ways)[:: 1 if number % 2 else -1]:
                out = settings.scratch / f"{name.replace(' ', '-')}-{number}"
                start = time.perf_counter()
                found = ways[name](out)
                turn[name] = count / (time.perf_counter() - start)
                expected = expected if expected is not None else found
                equal = equal and same(found, expected)
            rounds.append(turn)
    rates = {name: statistics.median(turn[name] for turn in rounds) for name in ways}
    return {"rows": count, "batch": BATCH, "rows_per_second": rates, "equal_to_the_bit": equal, "rounds": rounds}


def written(path: Path, count: int) -> Path:
    """Digits by their pixels, a column each, and a number."""
    pixels = rows(count).reshape(count, -1)
    frame = pd.DataFrame({"inputs": list(pixels)}).assign(number=np.arange(count))
    frame.to_parquet(path, row_group_size=BATCH * 20)
    return path


def scored(folder: Path, table: Path, out: Path) -> pd.DataFrame:
    """By `demur score`, with one thread."""
    values = np.stack(list(pd.read_parquet(table)["inputs"]))
    np.save(out.with_suffix(".npy"), values.reshape(-1, 1, 8, 8))
    predictor = Predictor.load(folder, threads=1)
    score_file(predictor, out.with_suffix(".npy"), out.with_suffix(".parquet"), batch_size=BATCH)
    return pd.read_parquet(out.with_suffix(".parquet")).drop(columns="row")


def mapped(ray: Any, folder: Path, table: Path, actors: int, out: Path) -> pd.DataFrame:
    """By Ray Data."""
    done = ray.data.read_parquet(str(table)).map_batches(
        DigitScorer,
        fn_constructor_args=[str(folder)],
        fn_constructor_kwargs={"keep": ["number"]},
        batch_size=BATCH,
        compute=ray.data.ActorPoolStrategy(size=actors),
    )
    done.write_parquet(str(out))
    found = pd.read_parquet(out)
    return found.sort_values("number").drop(columns="number").reset_index(drop=True)


class DigitScorer(BatchScorer):
    """Of pixels in a row, as Parquet has them."""

    def __call__(self, batch: Any) -> Any:
        return super().__call__({**batch, "inputs": np.stack(list(batch["inputs"])).reshape(-1, 1, 8, 8)})


def same(found: pd.DataFrame, expected: pd.DataFrame) -> bool:
    """Every column to the bit; a prediction set is a list."""
    return list(found) == list(expected) and all(
        [list(cell) if isinstance(cell, np.ndarray) else cell for cell in found[name]]
        == [list(cell) if isinstance(cell, np.ndarray) else cell for cell in expected[name]]
        for name in expected
    )


@contextmanager
def ray_running() -> Iterator[Any]:
    """Ray on this machine, which tells nobody of it."""
    os.environ.update(RAY_USAGE_STATS_ENABLED="0", RAY_AUTH_MODE="disabled", RAY_DATA_DISABLE_PROGRESS_BARS="1")
    with warnings.catch_warnings(), tempfile.TemporaryDirectory(prefix="ray-") as folder:
        warnings.simplefilter("ignore")  # of its own deprecations
        import ray

        ray.init(
            num_cpus=max(ACTORS) + READERS,
            include_dashboard=False,
            log_to_driver=False,
            logging_level=logging.ERROR,
            _temp_dir=folder,
        )
        try:
            yield ray
        finally:
            ray.shutdown()
