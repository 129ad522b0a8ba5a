"""What a prediction with uncertainty costs: its time over that of the plain network, measured on this machine."""

import statistics
import time
from collections.abc import Callable
from functools import partial

import numpy as np

from offline.runtime.arrays import Array
from service.bundle import MeasuredPrice
from service.inference.onnx_runtime import onnxruntime
from service.inference.onnx_subgraph import extract_subgraph

BATCHES = (1, 16)
Work = Callable[[Array], object]
ROUNDS, ROUND_SECONDS = 5, 0.01
MEAN, VARIANCE = "mean", "variance"
LEAST_SECONDS = 5e-5  # a request takes several times as long around its graph
CALL_WORK = 2**18  # multiply-adds in the time that a call of the smallest graph takes


def measured_price(full: Work, plain: Work, example: Array, least_seconds: float = 0.0) -> tuple[MeasuredPrice, ...]:
    """1 + (f - p) / max(p, least) for each batch size, the median of some rounds: f, p seconds of `full` and `plain`.

    full, plain: functions of inputs; example (1, *input_shape). least_seconds: what a network's own time counts at
    least; 0: the ratio f / p. What takes long is timed once a round.
    """
    found = []
    for batch in BATCHES:
        inputs = np.repeat(example, batch, axis=0)
        found.append(MeasuredPrice(batch, _price(partial(full, inputs), partial(plain, inputs), least_seconds)))
    return tuple(found)


def _price(full: Callable[[], object], plain: Callable[[], object], least: float) -> float:
    once = [max(seconds_of(work, 1) for _ in range(2)) for work in (full, plain)]  # first use, too
    counts = [max(1, round(ROUND_SECONDS / seconds)) for seconds in once]
    rounds = [(seconds_of(full, counts[0]), seconds_of(plain, counts[1])) for _ in range(ROUNDS)]
    return statistics.median(1 + (f - p) / max(p, least) for f, p in rounds)


def seconds_of(work: Callable[[], object], count: int) -> float:
    """Seconds for one call, on average."""
    start = time.perf_counter()
    for _ in range(count):
        work()
    return (time.perf_counter() - start) / count


def graph_price(model: bytes, example: Array) -> float:
    """The larger price of one example and of a batch, of a serialised graph with mean and variance.

    A network that takes less than `LEAST_SECONDS` counts as taking so long; example (1, *input_shape).
    """
    full, plain = _runner(model, [MEAN, VARIANCE]), _runner(extract_subgraph(model, [MEAN]), [MEAN])
    return max(price.forward_passes for price in measured_price(full, plain, example, LEAST_SECONDS))


def _runner(model: bytes, results: list[str]) -> Work:
    """The graph in onnxruntime, with one thread."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return lambda inputs: session.run(results, {"inputs": inputs})
