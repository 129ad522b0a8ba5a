"""Scrapes of the real service as samples at simulated times, in the text that `promtool` imports (OpenMetrics)."""

import re
from typing import TextIO

JOB = "demur"
START = 1_767_571_200  # 5 January 2026, 00:00 UTC: where the simulated day begins
SAMPLE = re.compile(r"^(\w+)(?:\{(.*)\})? (\S+)$", re.MULTILINE)


class Recording:
    """Writes what a Prometheus that scrapes once a minute would store.

    No metric of the service is a moment of the real clock, so that only the samples' own times are simulated.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.samples = 0

    def take(self, minute: int, instance: str, scrape: str | None) -> None:
        """One scrape at the end of this minute; None: the target did not answer."""
        target, moment = f'job="{JOB}",instance="{instance}"', START + 60 * minute
        lines = [f"up{{{target}}} {int(scrape is not None)} {moment}"]
        for name, labels, value in SAMPLE.findall(scrape or ""):
            lines.append(f"{name}{{{target}{',' if labels else ''}{labels}}} {value} {moment}")
        self._stream.write("\n".join(lines) + "\n")
        self.samples += len(lines)

    def end(self) -> None:
        """What the format ends with."""
        self._stream.write("# EOF\n")
