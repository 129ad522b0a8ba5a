"""The toys, the UCI tables, and both with a gap."""

from typing import Any

from benchmarks.core.markdown import Cell, listed, number, percent, signed, table
from paper.gaps.data import TABLES, TOYS
from paper.gaps.summary import BASELINE, MEASURES, summarise
from paper.page.results import Section, frame
from paper.tables import summary as tables
from paper.tables.claim import STATEMENT, claim
from paper.toys import run as toys
from paper.toys.run import SHOWN

SHARES = ("0.5", "0.03", "0.01")
METHODS = ("wasserstein", "wasserstein, live", "random", "gradient", "greedy")
ADDED, BOTH, LIKELIEST = "added weights", "both (default)", "added weights, likeliest"


def toy(result: dict[str, Any]) -> Section:
    """How far each method's predictive is from the full covariance's."""
    stem, summary = result["stem"], toys.summarise(result["runs"])
    dead = [run["dead_weights"] for run in result["runs"]]
    against = [f"`{other}` {_closer(summary, other)}" for other in ("random", "diagonal", "last layer")]
    rows = [
        [method, *(number(_mean_kl(_at(summary[SHOWN][method], share)), 3) for share in SHARES)]
        for method in (*METHODS, "diagonal", "last layer", "MAP")
    ]
    text = [
        "## Toy regression (figure 2)\n",
        f"2 x 50 ReLU, {result['runs'][0]['weights']:,} weights without biases, prior precision 3 S / D, "
        f"{result['setting']['seeds']} seeds. The measure is the KL divergence from the predictive of the full "
        "covariance, in nats: the mean over points near the training inputs, and between and beyond them. The paper "
        "shows pictures and no numbers.\n",
        f"With {listed([_share(share) for share in SHARES])} of the weights, the paper's selection (`wasserstein`) is "
        f"closer to the full covariance than {'; than '.join(against)}. "
        f"Between {min(dead):,} and {max(dead):,} weights belong to units that no training input activates: they have "
        "the prior's variance, the largest there is, and the rule takes them first. `live` leaves them out; `greedy` "
        "adds the weights one by one that bring the predictive closest.\n",
        table([f"{SHOWN}, weights", *map(_share, SHARES)], rows),
        'The last three rows have no share. "Last layer" is a part of the full posterior, as in the paper.\n',
        frame(result, "Predictives of a toy regression", [stem]),
    ]
    full: list[dict[str, Cell]] = [
        {"toy": name, "method": method, "share": float(share)}
        | {f"{where}_{key}": value for where, spread in found.items() for key, value in spread.items()}
        for name, methods in summary.items()
        for method, shares in methods.items()
        for share, found in shares.items()
    ]
    return Section("\n".join(text), {stem: full})


def _share(share: str) -> str:
    return f"{100 * float(share):.3g} %"


def _closer(summary: dict[str, Any], other: str) -> str:
    """On which toys, for each share of the weights."""
    parts = []
    for share in SHARES:
        closer = [
            name
            for name, methods in summary.items()
            if _mean_kl(methods["wasserstein"][share]) < _mean_kl(_at(methods[other], share))
        ]
        if closer:
            parts.append(f"{listed(closer)} with {_share(share)}")
    return f"on {', '.join(parts)}" if parts else "on no toy"


def _at(method: dict[str, Any], share: str) -> dict[str, Any]:
    """That of this share of the weights, or the only one there is."""
    found: dict[str, Any] = method[share] if len(method) > 1 else next(iter(method.values()))
    return found


def _mean_kl(value: dict[str, Any]) -> float:
    return float(value["near"]["mean"] + value["away"]["mean"]) / 2


def uci(result: dict[str, Any]) -> Section:
    """The tests of the paper's claim."""
    stem, summary = result["stem"], tables.summarise(result["runs"])
    rows = []
    for method, found in claim(result["runs"]).items():
        pooled = found["pooled"]
        p_value = "" if pooled["p_wilcoxon"] is None else f"{pooled['p_wilcoxon']:.2g}"
        cells = [signed(pooled["mean_difference"], 3), f"{pooled['positive']} of {pooled['units']}", p_value]
        rows.append([method, *cells, pooled["verdict"], found["pooled_over_tables"]["verdict"]])
    head = ["weights chosen by", "difference (nats)", "splits won", "p (Wilcoxon)", "over splits", "over tables"]
    text = [
        "## UCI regression (figure 3)\n",
        f"The claim: {STATEMENT}. Differences are those of the largest network (2 x 100 ReLU) from each smaller one, "
        "on random splits and on gap splits (the middle third by one input). MAP has no posterior, and shows what the "
        "larger network gains by its mean alone. The paper shows curves. --fast takes some splits, rows and values of "
        "lambda only (`setting` in the results).\n",
        table(head, rows),
        "Holds: Wilcoxon's signed-rank test at 5 %. Training sets of one table's splits overlap, so that p-values over "
        "splits are too small; the last column has one unit a table.\n",
        frame(result, "Test log-likelihood against the number of weights with a posterior", [stem]),
    ]
    full: list[dict[str, Cell]] = [
        {"table": name, "network": network, "method": method, "S": entry["S"]}
        | {"log_likelihood": entry["mean"], "standard_error": entry["stderr"]}
        for name, networks in summary.items()
        for network, found in networks.items()
        for method, entries in found.items()
        if isinstance(entries, list)
        for entry in entries
    ]
    return Section("\n".join(text), {stem: full})


def gaps(result: dict[str, Any]) -> Section:
    """What the added weights gain and lose inside a gap."""
    stem, summary = result["stem"], summarise(result["runs"])
    shown = ("ensemble of 5", "wasserstein", "full covariance", LIKELIEST, BOTH)
    rows = []
    for name, found in summary.items():
        methods = found["methods"]
        gains = [signed(_gain(methods[label])) if label in methods else "" for label in shown]
        own = methods[BOTH]["gap"]
        cells = [percent(own[measure]["mean"]) for measure in ("coverage", "rejected")]
        rows.append([name, number(found["squared_error_in_the_gap"]["mean"], 1), *gains, *cells])
    none = [f"{name} {_zeros(found)} of {found['splits']}" for name, found in summary.items()]
    absent = [name for name in (*TOYS, *TABLES) if name not in summary]
    head = ["", "squared error", *shown, "coverage", "rejected"]
    text = [
        "## Regression with a gap\n",
        "The middle third by one input is never trained on. Inside it: the squared error over that of ordinary rows; "
        "gains in log-likelihood over the noise alone, in nats; the coverage of the default's 95 % intervals, and what "
        "it rejects at a false-reject rate of 5 %. `wasserstein` (S = 1,000) and the full covariance are the paper's; "
        "`likeliest` takes the prior variance under which validation rows are likeliest.\n",
        table(head, rows),
        "The default's intervals are wide where a toy has no data, but cover too little where the error grows most. In "
        "the gaps of the tables the error is no larger than elsewhere, and there is nothing to gain. Splits on which "
        f"the likeliest variance is none: {'; '.join(none)}. So the variance is bounded by the budget, and not chosen "
        "by likelihood." + (f" Not measured at this size: {listed(absent)}.\n" if absent else "\n"),
        frame(result, "Intervals of each method on toys with a gap", [stem]),
    ]
    full = [
        _gap_row(name, label, method) for name, found in summary.items() for label, method in found["methods"].items()
    ]
    return Section("\n".join(text), {stem: full})


def _gap_row(name: str, label: str, method: dict[str, Any]) -> dict[str, Cell]:
    row: dict[str, Cell] = {"data": name, "method": label}
    for part in ("ordinary", "gap"):
        row |= {f"{part}_{m}": None if method[part][m] is None else method[part][m]["mean"] for m in MEASURES}
    row |= {"gain_in_the_gap": None if label == BASELINE else _gain(method), "gain_std": method["gain"]["gap"]["std"]}
    return row | {"auroc": None if method["auroc"] is None else method["auroc"]["mean"]}


def _gain(method: dict[str, Any]) -> float:
    return float(method["gain"]["gap"]["mean"])


def _zeros(found: dict[str, Any]) -> int:
    return sum(variance == 0 for variance in found["methods"][LIKELIEST]["prior_variances"])
