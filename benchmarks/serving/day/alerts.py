"""When the alerts of deploy/prometheus fired on that day: their expressions at every minute, and their `for`."""

import re
from collections.abc import Iterable
from typing import Any

import yaml  # type: ignore[import-untyped]

from benchmarks.core.folders import ROOT
from benchmarks.serving.day.plan import MINUTES, clock
from benchmarks.serving.day.prometheus import STEP, Prometheus

RULES = ROOT / "deploy" / "prometheus" / "alerts.yml"
UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
LEFT_OUT = ("__name__", "job", "model")  # the same in all


def alerts(prometheus: Prometheus) -> list[dict[str, Any]]:
    """Each time that one fired, in order; cleared: None where it still did at the end of the day."""
    found = []
    groups = yaml.safe_load(RULES.read_text())["groups"]
    for rule in (rule for group in groups for rule in group["rules"]):
        for labels, values in prometheus.over_the_day(rule["expr"]):
            for first, last in firing(values, duration(rule["for"]) // STEP):
                shown = {name: value for name, value in labels.items() if name not in LEFT_OUT}
                found.append({"alert": rule["alert"], "labels": shown, "fired": first, "cleared": last})
    found.sort(key=lambda one: (one["fired"], one["alert"]))
    return [one | {"fired_at": clock(one["fired"])} for one in found]


def firing(minutes: Iterable[int], hold: int) -> list[tuple[int, int | None]]:
    """From when to when an alert fires whose expression has a value at these minutes, and did for `hold` before.

    The end is the first minute without a value; None where there is none after it on this day.
    """
    found: list[tuple[int, int | None]] = []
    held = sorted(minutes)
    starts = [minute for place, minute in enumerate(held) if not place or held[place - 1] != minute - 1]
    ends = [minute for place, minute in enumerate(held) if place + 1 == len(held) or held[place + 1] != minute + 1]
    for start, end in zip(starts, ends, strict=True):
        if end - start >= hold:
            found.append((start + hold, None if end == MINUTES else end + 1))
    return found


def duration(text: str) -> int:
    """Seconds of 1h30m."""
    return sum(int(number) * UNITS[unit] for number, unit in re.findall(r"(\d+)([smhd])", text))
