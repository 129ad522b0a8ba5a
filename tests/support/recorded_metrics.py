"""What the real service says of itself, minute after minute, and which alerts follow from it.

A minute here is a scrape: the service is driven with that minute's requests and read, and promtool is given the
readings as one a minute. An hour passes in seconds, and nothing is waited for.
"""

import itertools
import re
import subprocess
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import yaml

from tests.support.deployment import RULE_FILES

SAMPLE = re.compile(r"^(\w+)(?:\{(.*)\})? (\S+)$", re.MULTILINE)
JOB, INSTANCE = "models", "a:8000"  # any name will do
# What no alert reads.
UNREAD = ("_created", "_sum", "python_", "process_")


class Recording:
    """Scrapes, one a minute; `target` is what Prometheus adds to each series."""

    def __init__(self) -> None:
        self.minutes: list[dict[str, str]] = []

    def take(self, scrape: str | None) -> None:
        """One minute's scrape; None: the target did not answer."""
        series = {f'up{{job="{JOB}",instance="{INSTANCE}"}}': "0" if scrape is None else "1"}
        for name, labels, value in SAMPLE.findall(scrape or ""):
            if not name.endswith(UNREAD[:2]) and not name.startswith(UNREAD[2:]):
                target = f'job="{JOB}",instance="{INSTANCE}"'
                series[f"{name}{{{labels + ',' if labels else ''}{target}}}"] = value
        self.minutes.append(series)

    def input_series(self) -> list[dict[str, str]]:
        """As promtool reads them; what is not in a scrape is stale from then on, as for Prometheus."""
        names = dict.fromkeys(itertools.chain.from_iterable(self.minutes))
        found = []
        for name in names:
            values = [minute.get(name, "stale") for minute in self.minutes]
            first = next(i for i, value in enumerate(values) if value != "stale")
            found.append({"series": name, "values": " ".join(["_"] * first + values[first:])})
        return found


def record(minutes: int, minute: Callable[[int], object], scrape: Callable[[], str | None]) -> Recording:
    """`minute` sends what one minute brings. The first scrape comes before all of it."""
    recording = Recording()
    recording.take(scrape())
    for number in range(minutes):
        minute(number)
        recording.take(scrape())
    return recording


def check_firing(folder: Path, recording: Recording, expected: Mapping[int, Iterable[str]]) -> None:
    """Fails unless exactly these alerts fire at these minutes."""
    firing = 'count by (alertname) (ALERTS{alertstate="firing"})'
    tests = [
        {
            "expr": firing,
            "eval_time": f"{minute}m",
            "exp_samples": [{"labels": f'{{alertname="{name}"}}', "value": 1} for name in names],
        }
        for minute, names in expected.items()
    ]
    document = {
        "rule_files": [str(file) for file in RULE_FILES],
        "evaluation_interval": "1m",
        "tests": [{"interval": "1m", "input_series": recording.input_series(), "promql_expr_test": tests}],
    }
    (folder / "recorded.yml").write_text(yaml.safe_dump(document))
    done = subprocess.run(["promtool", "test", "rules", "recorded.yml"], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-6000:]
