"""Tables of `python -m benchmarks scores` and `trials`: scores, and what was tried and is not in the product."""

from typing import Any

NETWORKS = {"mnist": "MNIST", "fashion": "Fashion-MNIST", "cifar": "CIFAR-10"}
SHIFTS = ("usual", "turned", "other shifts")
JOINED = "surprise "


def title(result: dict[str, Any], network: str) -> str:
    """The network and its seeds, as a table is headed."""
    seeds = sum(run["network"] == network for run in result["runs"])
    return f"{NETWORKS[network]}, {seeds} {'seed' if seeds == 1 else 'seeds'}"


def scores(result: dict[str, Any]) -> str:
    """For each network a table of its scores: AUROC and the share of foreign examples accepted, means."""
    return _score_tables(result, "summary")


def score_candidates(result: dict[str, Any]) -> str:
    """The same of scores that Probity does not have; joined to the default score also what the AUROC gains."""
    return _score_tables(result, "candidates")


def trials(result: dict[str, Any]) -> str:
    """For each trial and network a table: mean log-likelihoods, and the gain over the control."""
    spectrum, second = result["summary"]["spectrum"], result["summary"]["second mean"]
    tables = [
        _table(f"{title(result, network)}: {part}", rows)
        for network, parts in spectrum.items()
        for part, rows in parts.items()
    ]
    tables += [_table(title(result, network), parts[""]) for network, parts in second.items()]
    curvature = result["summary"]["curvature"]
    tables += [_table(f"{title(result, network)}: curvature", parts[""]) for network, parts in curvature.items()]
    return "\n".join(tables)


def _score_tables(result: dict[str, Any], part: str) -> str:
    tables = []
    for network, found in result[part].items():
        sets = list(next(iter(found.values())))
        lines = [f"| {title(result, network)} | {' | '.join(sets)} |", "| --- " * (1 + len(sets)) + "|"]
        for name, rates in found.items():
            cells = [_cell(rates[one], gain=name.startswith(JOINED)) for one in sets]
            lines.append(f"| {name.replace('_', ' ')} | {' | '.join(cells)} |")
        tables.append("\n".join(lines) + "\n")
    return "\n".join(tables)


def _cell(rates: dict[str, float], *, gain: bool) -> str:
    text = f"{rates['auroc']:.4f}, {100 * rates['fpr']:.1f} %"
    return f"{text} ({rates['gain']:+.4f} ± {rates['gain_std']:.4f})" if gain else text


def _table(heading: str, rows: dict[str, Any]) -> str:
    first = next(iter(rows.values()))
    shown = [name for name in (*SHIFTS, "accuracy") if name in first]
    lines = [f"| {heading} | {' | '.join('ordinary' if name == 'usual' else name for name in shown)} |"]
    lines.append("| --- " * (1 + len(shown)) + "|")
    for label, row in rows.items():
        cells = [
            f"{row[name]['mean']:.3f} ({row[name]['gain']:+.4f} ± {row[name]['gain_std']:.4f})"
            if name in SHIFTS
            else f"{row[name]['mean']:.4f}"
            for name in shown
        ]
        lines.append(f"| {label} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"
