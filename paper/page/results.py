"""The results that are at hand, where they come from, and what a section of the page is made of."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from benchmarks.core.markdown import Cell, listed

RESULTS = Path(__file__).parents[1] / "results"
TABLES = RESULTS / "tables"
SIZES = {"_fast": "--fast", "": "full size"}


@dataclass(frozen=True)
class Section:
    """The text of one experiment, and its full tables: name of the CSV file -> rows with the same keys."""

    text: str
    tables: dict[str, list[dict[str, Cell]]]


def results(name: str) -> list[dict[str, Any]]:
    """What `python -m paper NAME` measured, the smaller size first, each with its "stem"; [] where nothing did."""
    files = [RESULTS / f"{name}{suffix}.json" for suffix in SIZES]
    return [json.loads(file.read_text()) | {"stem": file.stem} for file in files if file.exists()]


def frame(result: dict[str, Any], title: str, tables: Sequence[str]) -> str:
    """The picture; the command, time, date, machine and commits of the measurement; and where the full tables are."""
    environment = result["environment"]
    date = datetime.fromisoformat(environment["date"])
    seconds = result.get("seconds_of_work", result.get("setting", {}).get("seconds_of_networks"))
    minutes = (result["seconds_in_all"] if seconds is None else seconds) / 60
    commits = sorted({commit[:7] for commit in _commits(result)} or {environment["git_commit"][:7]})
    files = listed([f"[{name}.csv](../paper/results/tables/{name}.csv)" for name in tables])
    return (
        f"![{title}](../paper/results/{result['stem']}.png)\n\n"
        f"`{command(environment['command'])}`: {minutes:.0f} minutes of work, the last on {date.day} {date:%B %Y}; "
        f"{environment['cpu']}, {environment['threads']} of {environment['cores']} cores; "
        f"{'commit' if len(commits) == 1 else 'commits'} {', '.join(f'`{commit}`' for commit in commits)}. "
        f"In full: {files}.\n"
    )


def command(words: list[str]) -> str:
    """Of the whole experiment, without the rows that were measured last and their seeds.

    Results from before the experiments had a folder of their own name `python -m benchmarks paper_NAME`.
    """
    kept = list(words)
    if kept[2] == "benchmarks":
        kept[2:4] = ["paper", kept[3].removeprefix("paper_")]
    for option in ("--rows", "--seeds") if "--rows" in kept else ():
        if option in kept:
            place = kept.index(option)
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
