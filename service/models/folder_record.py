"""What a repository knows about one bundle folder."""

import asyncio
import math
from dataclasses import dataclass, field
from pathlib import Path

from ..format.text import printable
from .folders import Stamp
from .served import ServedModel

MAX_BACKOFF = 32  # scans between attempts to load a bundle that is refused each time
# After an attempt of more than SLOW_SECONDS, wait 20 times as long: a bundle that hangs takes at most 5 % of the time.
SLOW_SECONDS, PAUSE_FACTOR = 1.0, 20.0


@dataclass(eq=False)
class FolderRecord:
    """One bundle folder: the model loaded from it, and the reason where its present content does not serve.

    `missed_scans`: scans in a row that did not see the folder; `of_the_start`: it was there when the service started;
    `refused_elsewhere`: why what is at its URI now did not come; `backoff`: scans to wait after the next refusal.
    `busy` is held while the folder is tried and loaded.
    """

    folder: Path
    folder_name: str
    stamp: Stamp | None = None
    model: ServedModel | None = None
    reason: str = ""
    refused_elsewhere: str = ""
    missed_scans: int = 0
    of_the_start: bool = False
    backoff: int = 1
    retry_in: int = 0
    retry_at: float = -math.inf
    busy: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def name(self) -> str:
        """The model's name; before the first load, the folder's, or its parent's where that holds several versions."""
        return self.model.name if self.model else printable(self.folder_name)

    @property
    def place(self) -> str:
        """The folder, for the log."""
        return printable(str(self.folder))

    def refused(self, reason: str, now: float, seconds: float) -> bool:
        """Note why an attempt of `seconds` failed, and double the wait before the next. Returns whether the reason is
        new."""
        new, self.reason = reason != self.reason, reason
        self.retry_in, self.backoff = self.backoff, min(2 * self.backoff, MAX_BACKOFF)
        self.retry_at = now + PAUSE_FACTOR * seconds if seconds > SLOW_SECONDS else -math.inf
        return new

    def loaded(self, model: ServedModel) -> None:
        """Serve `model`, and forget earlier refusals."""
        self.model, self.reason, self.backoff, self.retry_in = model, "", 1, 0

    def due(self, now: float) -> bool:
        """Whether to try a refused bundle again: the cause may lie outside the folder, such as a key that is not
        trusted yet. Call it once a scan."""
        self.retry_in -= 1
        return bool(self.reason) and self.retry_in <= 0 and now >= self.retry_at
