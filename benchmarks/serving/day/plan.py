"""What happens when: requests by the minute, and the events of the day."""

import math
from dataclasses import dataclass

import numpy as np

MINUTES = 24 * 60
SWING, PEAK = 0.7, 15 * 60  # the traffic is 1 + SWING at PEAK and 1 - SWING twelve hours from it
ADDED, CANARY, PROMOTED = 5 * 60, 7 * 60, 10 * 60
DRIFT = range(12 * 60, 17 * 60)
MALFORMED = range(20 * 60, 20 * 60 + 10)
DOWN = range(22 * 60, 22 * 60 + 10)
CANARY_SHARE, MALFORMED_SHARE = 0.1, 0.2
LABELLED, LABEL_DELAY = 0.05, (2 * 60, 4 * 60)  # share of the answers; after how many minutes their labels come


@dataclass(frozen=True)
class Event:
    """Something that begins at this minute, and ends at another one or lasts."""

    minute: int
    name: str
    end: int | None = None


EVENTS = (
    Event(ADDED, "version 2 added, reload"),
    Event(CANARY, f"canary of {CANARY_SHARE:.0%}"),
    Event(PROMOTED, "version 2 promoted"),
    Event(DRIFT.start, "drift: digits turned", DRIFT.stop),
    Event(MALFORMED.start, f"{MALFORMED_SHARE:.0%} malformed", MALFORMED.stop),
    Event(DOWN.start, "replica 2 down", DOWN.stop),
)


def requests_by_minute(total: int) -> list[int]:
    """So many requests over the day, in the shape of a wave."""
    turns = 2 * math.pi * (np.arange(MINUTES) + 0.5 - PEAK) / MINUTES
    shape = 1 + SWING * np.cos(turns)
    until = np.rint(total * shape.cumsum() / shape.sum()).astype(int)
    counts: list[int] = np.diff(until, prepend=0).tolist()
    return counts


def clock(minute: int) -> str:
    """The time of the day, as 13:05."""
    return f"{minute // 60:02}:{minute % 60:02}"
