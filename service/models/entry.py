"""What a repository knows of one bundle folder."""

import asyncio
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from service.format.text import printable
from service.models.folders import Stamp
from service.models.served import ServedModel

State = Literal["READY", "UNAVAILABLE"]
MOST_PATIENCE = 32  # scans between attempts at a bundle that was refused again and again
# A bundle that takes long to be refused, as one that never ends does, takes at most a twentieth of the time.
LONG_SECONDS, PAUSE = 1.0, 20.0


@dataclass(eq=False)
class Entry:
    """One bundle folder: the model loaded from it, and why its present content is not the one that serves.

    `busy` is held while its content is tried and loaded; `unloads` counts how often somebody asked for that to end.
    """

    folder: Path
    called: str
    stamp: Stamp | None = None
    model: ServedModel | None = None
    reason: str = ""
    parked: bool = False
    missing: int = 0
    patience: int = 1
    retry_in: int = 0
    retry_at: float = -math.inf
    unloads: int = 0
    busy: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def name(self) -> str:
        """The model's name; where it never was loaded, its folder's, or that of the one around several versions."""
        return self.model.name if self.model else printable(self.called)

    @property
    def place(self) -> str:
        """The folder, for the log."""
        return printable(str(self.folder))

    def refused(self, reason: str, now: float, seconds: float) -> bool:
        """Note why it was not loaded, which took so many seconds, and wait longer each time before the next attempt;
        whether the reason is new."""
        new, self.reason = reason != self.reason, reason
        self.retry_in, self.patience = self.patience, min(2 * self.patience, MOST_PATIENCE)
        self.retry_at = now + PAUSE * seconds if seconds > LONG_SECONDS else -math.inf
        return new

    def loaded(self, model: ServedModel) -> None:
        """It serves."""
        self.model, self.reason, self.parked, self.patience, self.retry_in = model, "", False, 1, 0

    def due(self, now: float) -> bool:
        """Whether to try once more what was refused: what was wrong may lie outside the folder, as with a key that is
        not trusted yet."""
        self.retry_in -= 1
        return bool(self.reason) and self.retry_in <= 0 and now >= self.retry_at


@dataclass(frozen=True)
class Listed:
    """A line of the repository's index."""

    name: str
    version: str
    state: State
    reason: str
