"""`python -m docs.figures`: write into docs/benchmarks.md what the files in benchmarks/results say of themselves.

These are the counts of `layers`, tables, and the date and commit of each measurement.
"""

import json
import math
from datetime import datetime
from pathlib import Path
from typing import Any

from docs.guarantee_tables import guarantees
from docs.marked import update_parts

PAGE = Path(__file__).with_name("benchmarks.md")
RESULTS = Path(__file__).parent.parent / "benchmarks" / "results"
MEASURED = (
    ("peer", "floor", "growth", "cost"),
    ("price",),
    ("frontier",),
    ("scores",),
    ("mnist_shift",),
    ("drift",),
    ("guarantees",),
    ("evaluate",),
    ("load",),
    ("peers",),
    ("soak",),
    ("fuzz", "contract"),
)
NETWORKS = {"mnist": "MNIST", "cifar": "CIFAR-10"}
FRONTIER = {"usual": "ordinary", "rotation": "turned", "unseen": "other shifts", "auroc": "AUROC"}


def parts() -> dict[str, str]:
    """The generated parts of the page by their names."""
    dates = {f"measured: {', '.join(names)}": measured(names) for names in MEASURED}
    return {name: make(read(name)) for name, make in MADE.items()} | dates


def read(name: str) -> dict[str, Any]:
    """One file of results."""
    result: dict[str, Any] = json.loads((RESULTS / f"{name}.json").read_text())
    return result


def layers(result: dict[str, Any]) -> str:
    """A sentence on every layer of torch.nn; the error is rounded up."""
    counts = [result[outcome] for outcome in ("exported", "refused", "failed")]
    error = max(row.get("relative_error", 0.0) for row in result["rows"])
    power = math.floor(math.log10(error))
    failed = f"; {counts[2]} failed" if counts[2] else ""
    return (
        f"`layers`: {sum(counts)} layers of `torch.nn` and functions, each in a network of its own. {counts[0]} are\n"
        f"exported, within {math.ceil(error / 10**power)}e{power} of plain differentiation; {counts[1]} are rejected "
        f"with an error that says why{failed}.\n"
    )


def price(result: dict[str, Any]) -> str:
    """The table of prices, one row a choice of weights."""
    head = "| weights | S of D | graph, 1 example | graph, 16 | prediction, 1 | prediction, 16 |"
    lines = [head, "| --- " * 6 + "|"]
    for row in result["rows"]:
        alone, together = row["batches"]
        ratios = [one[f"{name}_over_plain"] for name in ("graph", "predict") for one in (alone, together)]
        cells = (row["name"], f"{row['S']:,} of {row['D']:,}", *(f"{ratio:.2g}" for ratio in ratios))
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def frontier(result: dict[str, Any]) -> str:
    """For each network a table of its methods: means over the seeds."""
    tables = []
    for network, methods in result["summary"].items():
        seeds = sum(run["network"] == network for run in result["runs"])
        quantities = [name for name in FRONTIER if all(name in found for found in methods.values())]
        head = f"| {NETWORKS[network]}, {seeds} {'seed' if seeds == 1 else 'seeds'} | passes |"
        lines = [head + "".join(f" {FRONTIER[name]} |" for name in quantities), "| --- " * (2 + len(quantities)) + "|"]
        for method, found in methods.items():
            cells = [f"{found['price']['mean']:.2g}", *(f"{found[name]['mean']:.3f}" for name in quantities)]
            lines.append(f"| {method} | {' | '.join(cells)} |")
        tables.append("\n".join(lines) + "\n")
    return "\n".join(tables)


def scores(result: dict[str, Any]) -> str:
    """For each network a table of its scores: AUROC and the share of foreign examples accepted, means."""
    tables = []
    for network, found in result["summary"].items():
        seeds = sum(run["network"] == network for run in result["runs"])
        sets = list(next(iter(found.values())))
        head = f"| {NETWORKS[network]}, {seeds} {'seed' if seeds == 1 else 'seeds'} |"
        lines = [head + "".join(f" {name} |" for name in sets), "| --- " * (1 + len(sets)) + "|"]
        for name, rates in found.items():
            cells = [f"{rates[one]['auroc']:.4f}, {100 * rates[one]['fpr']:.1f} %" for one in sets]
            lines.append(f"| {name.replace('_', ' ')} | {' | '.join(cells)} |")
        tables.append("\n".join(lines) + "\n")
    return "\n".join(tables)


def evaluate(result: dict[str, Any]) -> str:
    """A row for each work: its time, and its memory for each number of examples."""
    counts = sorted({one["examples"] for one in result["memory"]})
    grown = {(one["work"], one["examples"]): one["growth_bytes"] / 2**20 for one in result["memory"]}
    head = f"| {result['examples']:,} examples | over the plain network | seconds |"
    lines = [head + "".join(f" MiB, {count:,} |" for count in counts), "| --- " * (3 + len(counts)) + "|"]
    for row in result["rows"]:
        name = (
            f"`score` to {row['work']}"
            if row["work"].startswith(".")
            else row["work"].replace("evaluate", "`evaluate`")
        )
        memory = [f"{grown[row['work'], count]:.0f}" if (row["work"], count) in grown else "" for count in counts]
        lines.append(f"| {name} | {row['over_plain']:.1f} | {row['seconds']:.1f} | {' | '.join(memory)} |")
    return "\n".join(lines) + "\n"


def measured(names: tuple[str, ...]) -> str:
    """When, and on which code."""
    times: dict[str, list[str]] = {}
    for name in names:
        environment = read(name)["environment"]
        date = datetime.fromisoformat(environment["date"])
        commit = environment["git_commit"][:7]
        times.setdefault(f"on {date.day} {date:%B %Y} with the code of commit `{commit}`", []).append(f"`{name}.json`")
    if len(times) == 1:
        return f"Measured {next(iter(times))}.\n"
    return "Measured " + "; ".join(f"{when} ({', '.join(which)})" for when, which in times.items()) + ".\n"


MADE = {
    "layers": layers,
    "price": price,
    "frontier": frontier,
    "scores": scores,
    "guarantees": guarantees,
    "evaluate": evaluate,
}

if __name__ == "__main__":
    update_parts(PAGE, parts())
