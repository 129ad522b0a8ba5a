"""What a run says of inputs that are far outside the range of the fit: mostly a forgotten scaling."""

from dataclasses import dataclass

from demur.service.inference.input_range import RangeCheck

from .inputs import Array, Batch


@dataclass
class OutOfRange:
    """How many inputs of a run were outside, and what the first of them held. check: None, where no range is known."""

    check: RangeCheck | None
    count: int = 0
    first: str = ""

    def note(self, batch: Batch, number: int, outside: Array | None) -> None:
        """Count those of a batch, whose first input has this number; outside (B,) bool, as in its prediction."""
        if self.check is None or outside is None or not outside.any():
            return
        if not self.count:
            place = int(outside.argmax())
            name = f"row {number + place}" if batch.names is None else batch.names[place]
            self.first = name + next(self.check.texts(batch.inputs[place : place + 1]))
        self.count += int(outside.sum())

    @property
    def text(self) -> str:
        """One sentence."""
        others = self.count - 1
        return self.first + (f" So are {others:,} more." if others else "")
