"""A predictor whose speed the test decides."""

import threading
from typing import Any

from demur.service.bundle import Bundle
from demur.service.inference.predictor import Prediction, Predictor

TIMEOUT = 30


class Slow(Predictor):
    """Releases `entered` when it computes, then waits for `proceed`."""

    def __init__(self, bundle: Bundle, threads: int | None = None) -> None:
        super().__init__(bundle, threads=threads)
        self.entered, self.proceed, self.lock = threading.Semaphore(0), threading.Event(), threading.Lock()
        self.at_once = self.most_at_once = 0
        self.seen_in: set[int] = set()

    def predict(self, inputs: Any) -> Prediction:
        with self.lock:
            self.at_once += 1
            self.most_at_once = max(self.most_at_once, self.at_once)
            self.seen_in.add(threading.get_ident())
        self.entered.release()
        assert self.proceed.wait(TIMEOUT)
        try:
            return super().predict(inputs)
        finally:
            with self.lock:
                self.at_once -= 1
