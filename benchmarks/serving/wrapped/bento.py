"""BentoML: adaptive batching, at most 64 examples; how long it waits is learnt by BentoML itself."""

from typing import Any

import bentoml
import numpy as np

from benchmarks.serving.wrapped.common import WORKERS, answers, load
from benchmarks.serving.wrapped.settings import BATCH


@bentoml.service(workers=WORKERS, logging={"access": {"enabled": False}})
class Digits:
    """Each request holds a batch of one."""

    def __init__(self) -> None:
        self.predictor = load()

    @bentoml.api(batchable=True, max_batch_size=BATCH)
    def predict(self, inputs: np.ndarray) -> list[dict[str, Any]]:
        return answers(self.predictor.predict(inputs.astype(np.float32)))
