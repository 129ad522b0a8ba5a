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
from docs.score_tables import NETWORKS, scores, title

PAGE = Path(__file__).with_name("benchmarks.md")
RESULTS = Path(__file__).parent.parent / "benchmarks" / "results"
MEASURED = (
    ("peer", "floor", "growth", "cost"),
    ("price",),
    ("frontier",),
    ("table_rejection",),
    ("robustness",),
    ("scores",),
    ("drift",),
    ("guarantees",),
    ("evaluate",),
    ("load",),
    ("peers",),
    ("soak",),
    ("fuzz", "contract"),
)
# Quantity -> head of the column, and how a value is written.
FRONTIER = {
    "price": ("passes", ".2g"),
    "usual": ("ordinary", ".3f"),
    "ece": ("ECE", ".3f"),
    "rotation": ("turned", ".2f"),
    "unseen": ("other shifts", ".3f"),
    "ece_unseen": ("ECE", ".3f"),
    "auroc": ("AUROC, entropy", ".3f"),
    "score_auroc": ("AUROC, score", ".4f"),
    "labels_differ": ("labels that differ", ".1%"),
}
REJECTED = {
    "rejected_usual": "ordinary",
    "rejected_foreign": "foreign",
    "rejected_noise": "noise",
    "rejected_constant": "constant",
    "rejected_inverted": "inverted",
    "rejected_scaled-by-10": "times 10",
    "rejected_scaled-by-255": "times 255",
    "rejected_shuffled-pixels": "shuffled pixels",
}
ROBUSTNESS = {
    "usual": ("ordinary", ".3f"),
    "ece": ("ECE", ".3f"),
    "rotation": ("turned", ".2f"),
    "unseen": ("other shifts", ".3f"),
    "auroc_distance": ("AUROC, distance", ".4f"),
    "auroc": ("AUROC, score", ".4f"),
    "least_rejected": ("least rejected", ".0%"),
}
SETTINGS = {
    "default": "default",
    "length_scale": "length scale s",
    "precision": "precision rho",
    "features": "features R",
    "kept": "eigenpairs m",
    "layers": "layers:",
}


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
    """For each network a table of its methods: means over the seeds, in brackets how many where they are fewer; and one
    of what bundles reject."""
    tables = []
    for network, methods in result["summary"].items():
        quantities = {name: how for name, how in FRONTIER.items() if any(name in found for found in methods.values())}
        heads = [head for head, _ in quantities.values()]
        lines = [f"| {title(result, network)} | {' | '.join(heads)} |", "| --- " * (1 + len(heads)) + "|"]
        for method, found in methods.items():
            cells = [_cell(found.get(name), how) for name, (_, how) in quantities.items()]
            fewer = found["seeds"] < max(other["seeds"] for other in methods.values())
            label = f"{method} ({found['seeds']})" if fewer else method
            lines.append(f"| {label} | {' | '.join(cells)} |")
        tables.append("\n".join(lines) + "\n")
    lines = ["| rejected at 5 % | " + " | ".join(REJECTED.values()) + " |", "| --- " * (1 + len(REJECTED)) + "|"]
    for network, methods in result["summary"].items():
        for method, found in methods.items():
            if all(name in found for name in REJECTED):
                cells = [_cell(found[name], ".1%") for name in REJECTED]
                lines.append(f"| {NETWORKS[network]}, {method} | {' | '.join(cells)} |")
    return "\n".join([*tables, "\n".join(lines) + "\n"])


def _cell(value: dict[str, float] | float | None, how: str) -> str:
    """A mean, or a value; percent with a space."""
    mean = value["mean"] if isinstance(value, dict) else value
    return "" if mean is None else f"{mean:{how}}".replace("%", " %")


def robustness(result: dict[str, Any]) -> str:
    """For each network a table of its variants."""
    tables = []
    for row in result["rows"]:
        known = {name: how for name, how in ROBUSTNESS.items() if row["variants"][0][name] is not None}
        heads = [head for head, _ in known.values()]
        lines = [f"| {NETWORKS[row['network']]} | {' | '.join(heads)} |", "| --- " * (1 + len(heads)) + "|"]
        for one in row["variants"]:
            cells = [_cell(one[name], how) for name, (_, how) in known.items()]
            lines.append(f"| {SETTINGS[one['setting']]} {one['value']}".rstrip() + f" | {' | '.join(cells)} |")
        tables.append("\n".join(lines) + "\n")
    return "\n".join(tables)


def table_rejection(result: dict[str, Any]) -> str:
    """Quality beside the plain network's, and what is rejected: a row for each data set and kind of columns."""
    rows = result["rows"]
    heads = ("log-likelihood, plain", "default bundle", "ECE, plain", "default bundle", "labels that differ")
    quality = [f"| columns | held out | {' | '.join(heads)} |", "| --- " * (2 + len(heads)) + "|"]
    kinds = list(rows[0]["rejected"])
    rejected = [f"| rejected at 5 % | {' | '.join(kinds)} |", "| --- " * (1 + len(kinds)) + "|"]
    for row in rows:
        name = f"{row['data']}, {row['columns']}"
        pairs = [row[part][key] for key in ("log_likelihood", "ece") for part in ("plain", "bundle")]
        cells = [*(f"{value:.3f}" for value in pairs), f"{row['labels_differ']:.1%}"]
        quality.append(f"| {name} | {row['held_out']} | {' | '.join(cells)} |")
        shares = [f"{row['rejected'][kind]:.0%}" for kind in kinds]
        rejected.append(f"| {name} | {' | '.join(shares)} |")
    return "\n".join([*quality, "", *rejected]) + "\n"


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
    "table_rejection": table_rejection,
    "robustness": robustness,
    "scores": scores,
    "guarantees": guarantees,
    "evaluate": evaluate,
}

if __name__ == "__main__":
    update_parts(PAGE, parts())
