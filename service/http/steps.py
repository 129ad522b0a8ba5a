"""When the steps of a prediction ended, for the answer's timing and for traces."""

import time
from dataclasses import dataclass

from ..batching import Answered
from ..inference.prediction import Prediction
from ..models.served import ServedModel


@dataclass(slots=True)
class Steps:
    """Times on the clock of `time.perf_counter`; None: the request did not come so far."""

    model: ServedModel | None = None
    received_at: float | None = None
    decoded_at: float | None = None
    answered_at: float | None = None
    rows: int | None = None
    answer: Answered[Prediction] | None = None

    def received(self, model: ServedModel) -> None:
        """The body of a request to this model is there."""
        self.model, self.received_at = model, time.perf_counter()

    def decoded(self, rows: int) -> None:
        """The body was so many examples."""
        self.rows, self.decoded_at = rows, time.perf_counter()

    def answered(self, answer: Answered[Prediction]) -> None:
        """They are predicted."""
        self.answer, self.answered_at = answer, time.perf_counter()

    @property
    def decode_seconds(self) -> float:
        """How long decoding took."""
        return (self.decoded_at or 0.0) - (self.received_at or 0.0)

    def spans(self, end: float) -> list[tuple[str, float, float]]:
        """Name, beginning and end of each step of a request that ended at `end`. Without an answer, the last step lasts
        until then."""
        if self.received_at is None:
            return []
        if self.decoded_at is None:
            return [("decode", self.received_at, end)]
        decode = ("decode", self.received_at, self.decoded_at)
        if self.answer is None or self.answered_at is None:
            return [decode, ("queue", self.decoded_at, end)]
        # What is not computed is waited for: for a batch, a thread, and for the event loop to go on.
        taken = max(self.decoded_at, self.answered_at - self.answer.compute_seconds)
        return [decode, ("queue", self.decoded_at, taken), ("compute", taken, self.answered_at)]
