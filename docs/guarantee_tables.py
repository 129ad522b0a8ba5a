"""The tables of `guarantees` for docs/benchmarks.md."""

from typing import Any

Row = dict[str, Any]


def guarantees(result: Row) -> str:
    """False-reject rates, certified accuracy, prediction sets and intervals."""
    classes = [row for row in result["rows"] if "sets" in row]
    values = [row for row in result["rows"] if "intervals" in row]
    return "\n".join([rates(result["rows"]), certificates(classes), sets(classes), intervals(values)])


def rates(rows: list[Row]) -> str:
    """A row for each data set and rate: overall, and by class with one threshold and with one for each."""
    lines = []
    for row in rows:
        found = {(kept["rate"], kept["rule"]): kept for kept in row["rates"]}
        for rate in dict.fromkeys(rate for rate, _ in found):
            rules = [found[rate, kind] for kind in ("one", "by class") if (rate, kind) in found]
            cells = [cell for kept in rules for cell in _rate(kept)]
            lines.append([row["name"], _percent(rate, 0), *cells, *["-"] * (4 - len(cells))])
    head = [
        "rejected in distribution",
        "asked",
        "one threshold",
        "its classes",
        "a threshold for each class",
        "its classes",
    ]
    return _table(head, lines)


def _rate(kept: Row) -> tuple[str, str]:
    """The mean and the share inside, and the lowest and the highest class; a regression has none."""
    classes = kept["classes"]
    whole = f"{_percent(kept['mean'], 2)}, {_percent(kept['inside'])}"
    return whole, "-" if len(classes) == 1 else f"{_percent(min(classes))} to {_percent(max(classes))}"


def certificates(rows: list[Row]) -> str:
    """A row for each data set, a column for each accuracy."""
    asked = [kept["accuracy"] for kept in rows[0]["certificates"]]
    lines = [[row["name"], _percent(row["accuracy"]), *map(_certificate, row["certificates"])] for row in rows]
    return _table(["certified accuracy", "of all inputs", *(_percent(accuracy, 0) for accuracy in asked)], lines)


def _certificate(kept: Row) -> str:
    if kept["accepted"] is None:
        return "never certified"
    return f"{_percent(kept['holds'])}, {_percent(kept['certified'], 0)}, {_percent(kept['accepted'], 0)}"


def sets(rows: list[Row]) -> str:
    """A row for each data set and level."""
    lines = []
    for row in rows:
        found = {(kept["level"], kept["kind"]): kept for kept in row["sets"]}
        for level in dict.fromkeys(level for level, _ in found):
            both = [found[level, kind] for kind in ("tuned", "plain")]
            cells = [f"{_percent(kept['coverage'])}, {_percent(kept['not_below'])}" for kept in both]
            sizes = [f"{kept['size']:.2f}" for kept in both]
            lines.append([row["name"], _percent(level, 0), cells[0], sizes[0], cells[1], sizes[1]])
    return _table(
        ["prediction sets", "level", "RAPS: coverage", "mean size", "plain APS: coverage", "mean size"], lines
    )


def intervals(rows: list[Row]) -> str:
    """A row for each data set and level."""
    lines = []
    for row in rows:
        for kept in row["intervals"]:
            low, high = kept["gaussian_interval"]
            conformal = f"{_percent(kept['conformal'])}, {_percent(kept['inside'])}"
            expected = f"{_percent(low)} to {_percent(high)}"
            lines.append([row["name"], _percent(kept["level"], 0), conformal, _percent(kept["gaussian"]), expected])
    return _table(["intervals", "level", "conformal", "Gaussian", "expected of a Gaussian"], lines)


def _table(head: list[str], lines: list[list[str]]) -> str:
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *lines)) + "\n"


def _percent(share: float, digits: int = 1) -> str:
    return f"{100 * share:.{digits}f} %"
