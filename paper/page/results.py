"""The results of the paper's experiments that are at hand, at the size for two cores and at full size."""

import json
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parents[1] / "results"
SIZES = {"_fast": "--fast", "": "full size"}


def results(name: str) -> list[dict[str, Any]]:
    """What `python -m paper NAME` measured, the smaller size first; [] where nothing did."""
    files = [RESULTS / f"{name}{suffix}.json" for suffix in SIZES]
    return [json.loads(file.read_text()) for file in files if file.exists()]


def source(result: dict[str, Any]) -> str:
    """The command that repeats it, the time of all its work, and when, on what and from which commits it ran."""
    environment = result["environment"]
    date = datetime.fromisoformat(environment["date"])
    seconds = result.get("seconds_of_work", result.get("setting", {}).get("seconds_of_networks"))
    minutes = (result["seconds_in_all"] if seconds is None else seconds) / 60
    commits = sorted({commit[:7] for commit in _commits(result)} or {environment["git_commit"][:7]})
    return (
        f"`{command(environment['command'])}`, {minutes:.0f} minutes of work, the last on {date.day} {date:%B %Y}; "
        f"{environment['cpu']}, {environment['threads']} of {environment['cores']} cores; "
        f"{'commit' if len(commits) == 1 else 'commits'} {', '.join(f'`{commit}`' for commit in commits)}.\n"
    )


def command(words: list[str]) -> str:
    """Of the whole experiment: without the rows that were measured last, in this folder's words.

    Results from before the experiments had a folder of their own name `python -m benchmarks paper_NAME`.
    """
    kept = list(words)
    if kept[2] == "benchmarks":
        kept[2:4] = ["paper", kept[3].removeprefix("paper_")]
    if "--rows" in kept:
        place = kept.index("--rows")
        del kept[place : place + 2]
    return " ".join(kept)


def _commits(found: Any) -> Iterator[str]:
    """Of the outcomes that name their own."""
    if isinstance(found, dict):
        if isinstance(found.get("commit"), str):
            yield found["commit"]
        for value in found.values():
            yield from _commits(value)
    elif isinstance(found, list):
        for value in found:
            yield from _commits(value)


def picture(result: dict[str, Any], title: str) -> str:
    """The figure beside the results."""
    name = result["benchmark"].removeprefix("paper_") + ("_fast" if result["fast"] else "")
    return f"![{title}](../paper/results/{name}.png)\n"
