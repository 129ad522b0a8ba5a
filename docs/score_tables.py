"""Tables of `python -m benchmarks scores`."""

from typing import Any

NETWORKS = {"mnist": "MNIST", "fashion": "Fashion-MNIST", "cifar": "CIFAR-10"}


def title(result: dict[str, Any], network: str) -> str:
    """The network and its seeds, as a table is headed."""
    seeds = sum(run["network"] == network for run in result["runs"])
    return f"{NETWORKS[network]}, {seeds} {'seed' if seeds == 1 else 'seeds'}"


def scores(result: dict[str, Any]) -> str:
    """For each network a table of its scores: AUROC and the share of foreign examples accepted, means."""
    tables = []
    for network, found in result["summary"].items():
        sets = list(next(iter(found.values())))
        lines = [f"| {title(result, network)} | {' | '.join(sets)} |", "| --- " * (1 + len(sets)) + "|"]
        for name, rates in found.items():
            cells = [f"{rates[one]['auroc']:.4f}, {100 * rates[one]['fpr']:.1f} %" for one in sets]
            lines.append(f"| {name.replace('_', ' ')} | {' | '.join(cells)} |")
        tables.append("\n".join(lines) + "\n")
    return "\n".join(tables)
