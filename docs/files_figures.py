"""The tables of docs/benchmarks.md about networks in ONNX that other people made."""

from collections import Counter
from typing import Any

from benchmarks.core.markdown import Cell, number, table

Row = dict[str, Any]
METHODS = ("plain", "temperature", "default")
LINEAR = "last layer: linear"


def files(result: Row) -> str:
    """A row for each classifier that was fitted."""
    rows = []
    for row in result["rows"]:
        if "log_likelihood" in row:
            likelihoods, errors = (
                " / ".join(number(row[name][method], 3) for method in METHODS) for name in ("log_likelihood", "ece")
            )
            end = "linear" if row["end"].startswith(LINEAR) else "other"
            price = " / ".join(number(row["price"][batch], 1) for batch in ("1", "16"))
            shares = (f"{100 * row[name]:.0f} %" for name in ("wrong", "rejected"))
            first = f"{row['kind']} ({row['package'].replace('==', ' ')}, opset {row['opset']})"
            rows.append([first, end, f"{row['fit_seconds']:.0f} s", likelihoods, errors, *shares, _foreign(row), price])
    head = ["file", "end", "fit", "log-likelihood: plain / temperature / default", "ECE: the same", "wrong", "rejected"]
    return table([*head, "obvious foreigners rejected", "price, 1 / 16"], rows)


def files_intervals(result: Row) -> str:
    """Two rows for each regression: the default's intervals, and MAPIE's."""
    rows = []
    for row in result["rows"]:
        for method, own in row.get("methods", {}).items():
            rejected = [f"{100 * row['rejected']:.0f} %", _foreign(row)] if method == "default" else ["", ""]
            fifths = ", ".join(f"{100 * share:.0f}" for share in own["fifths"])
            found = [number(own["width"], 2), f"{100 * own['coverage']:.1f}", fifths]
            rows.append([row["name"], method, *found, *rejected])
    head = ["trees, table", "", "width", "coverage, %", "by fifths of the prediction"]
    return table([*head, "rejected", "obvious foreigners rejected"], rows)


def files_packages(result: Row) -> str:
    """A row for each package: what its files are."""
    rows: list[list[str]] = []
    for package in dict.fromkeys(row["package"] for row in result["packages"]):
        own = [row for row in result["packages"] if row["package"] == package]
        ends = Counter(_end(row) for row in own)
        slowest = f"{max(row['seconds'] for row in own):.1f} s"
        rows.append([package.replace("==", " "), *(str(ends[end] or "") for end in ENDS), slowest])
    total = Counter(_end(row) for row in result["packages"])
    rows.append(["all", *(str(total[end]) for end in ENDS), ""])
    return table(["package", *ENDS, "slowest"], rows)


def files_in_full(result: Row) -> list[dict[str, Cell]]:
    """A row for each file of the packages."""
    return [
        {
            "package": row["package"],
            "file": row["file"],
            "opset": row["opset"],
            "nodes": row["nodes"],
            "seconds": round(row["seconds"], 2),
            "end": _end(row),
            "found": row.get("refused") or "; ".join(row["found"][1:-1]),
        }
        for row in result["packages"]
    ]


ENDS = ("linear end", "other end", "refused")


def _end(row: Row) -> str:
    if "refused" in row:
        return "refused"
    return "linear end" if any(line.startswith(LINEAR) for line in row["found"]) else "other end"


def _foreign(row: Row) -> str:
    return ", ".join(f"{kind.replace('-', ' ')} {100 * share:.0f} %" for kind, share in row["foreign"].items())
