"""The results of the paper's experiments that are at hand, at the size for two cores and at full size."""

import json
from datetime import datetime
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"
SIZES = {"_fast": "--fast", "": "full size"}


def results(name: str) -> list[dict[str, Any]]:
    """What `paper_NAME` measured, the smaller size first; [] where nothing did."""
    files = [RESULTS / f"paper_{name}{suffix}.json" for suffix in SIZES]
    return [json.loads(file.read_text()) for file in files if file.exists()]


def source(result: dict[str, Any]) -> str:
    """The command that repeats it, and when and on what it ran."""
    environment = result["environment"]
    date = datetime.fromisoformat(environment["date"])
    minutes = result.get("seconds_of_work", result["seconds_in_all"]) / 60
    return (
        f"`{' '.join(environment['command'])}`, {minutes:.0f} minutes on {date.day} {date:%B %Y}, "
        f"{environment['cpu']}, {environment['threads']} of {environment['cores']} cores, "
        f"commit `{environment['git_commit'][:7]}`.\n"
    )


def picture(result: dict[str, Any], title: str) -> str:
    """The figure beside the results."""
    name = result["benchmark"] + ("_fast" if result["fast"] else "")
    return f"![{title}](../benchmarks/results/{name}.png)\n"
