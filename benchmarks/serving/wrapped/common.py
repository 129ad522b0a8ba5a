"""What all of them share: the same computation and the same answer."""

import os
from typing import Any

import numpy as np
import numpy.typing as npt
import threadpoolctl

from demur.service.inference.predictor import Prediction, Predictor

Array = npt.NDArray[Any]
PORT, WORKERS = int(os.environ.get("SERVED_PORT", "8000")), int(os.environ.get("SERVED_WORKERS", "1"))


BUNDLE, THREADS = os.environ.get("SERVED_BUNDLE", ""), int(os.environ.get("SERVED_THREADS", "1"))


def load() -> Predictor:
    threadpoolctl.threadpool_limits(THREADS)
    return Predictor.load(BUNDLE, threads=THREADS)


def example(values: Any) -> Array:
    """One example (1, 8, 8), as a request has it."""
    return np.asarray(values, np.float32)


def answers(prediction: Prediction) -> list[dict[str, Any]]:
    """One answer for each example: what all of them send."""
    assert prediction.probabilities is not None
    columns = {
        "probabilities": prediction.probabilities.tolist(),
        "variance": prediction.variance.tolist(),
        "score": prediction.score.tolist(),
        "p_value": prediction.p_value.tolist(),
        "rejected": prediction.rejected.tolist(),
    }
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
