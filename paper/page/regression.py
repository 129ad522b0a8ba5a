"""The toy and the UCI experiments."""

from typing import Any

from paper.page.markdown import folded, listed, number, signed, table
from paper.page.results import picture, source

SHOWN = "matern_1d"
SHARES = ("0.5", "0.03", "0.01")


def toy(result: dict[str, Any]) -> str:
    """How far each method's predictive is from the full covariance's."""
    text = [
        "## Toy regression (figure 2)\n",
        "Mean KL divergence from the predictive of the full covariance, in nats: near the training inputs, and between "
        "and beyond them. The paper shows pictures and no numbers. 2 x 50 ReLU, weights only (D = 2,600), prior "
        f"precision 3 scaled by S / D, {result['setting']['seeds']} seeds: mean ± standard deviation over them.\n",
        source(result),
        picture(result, "Predictives of a toy regression"),
        _toy_verdicts(result),
    ]
    for name, methods in result["summary"].items():
        rows = []
        for method, found in methods.items():
            if method == "full":
                continue
            for share, value in sorted(found.items(), key=lambda item: -float(item[0])):
                cells = (
                    f"{number(value[where]['mean'], 3)} ± {number(value[where]['std'], 3)}"
                    for where in ("near", "away")
                )
                rows.append([method, f"{100 * float(share):.3g} %", *cells])
        found = table(["method", "weights", "near", "between and beyond"], rows)
        text.append(f"{name}, the paper's data:\n\n{found}" if name == SHOWN else folded(name, found))
    return "\n".join(text)


def _toy_verdicts(result: dict[str, Any]) -> str:
    """Whether the paper's selection is closer to the full covariance than random selection and the diagonal."""
    dead = [run["dead_weights"] for run in result["runs"]]
    lines = []
    for other in ("random", "diagonal", "last layer"):
        for share in SHARES:
            closer = [
                name
                for name, methods in result["summary"].items()
                if _mean_kl(methods["wasserstein"][share]) < _mean_kl(_at(methods[other], share))
            ]
            where = f"on {listed(closer)}" if closer else "on no toy"
            lines.append(f"* {100 * float(share):.3g} % of the weights, closer than `{other}`: {where}.")
    weights = result["runs"][0]["weights"]
    return "\n".join(
        [
            "**The paper's selection** (`wasserstein`: largest marginal variances), by the mean of both columns:\n",
            *lines,
            f"\nBetween {min(dead):,} and {max(dead):,} of the {weights:,} weights belong to units that no training "
            "input activates: they have the prior's variance, the largest there is, and the rule takes them first. "
            "`live` leaves them out. `greedy` adds the weights one by one that bring the predictive closest.\n",
        ]
    )


def _at(method: dict[str, Any], share: str) -> dict[str, Any]:
    """That of this share of the weights, or the only one there is."""
    found: dict[str, Any] = method[share] if len(method) > 1 else next(iter(method.values()))
    return found


def _mean_kl(value: dict[str, Any]) -> float:
    return float(value["near"]["mean"] + value["away"]["mean"]) / 2


def uci(result: dict[str, Any]) -> str:
    """Test log-likelihood by network and number of weights, and the tests of the paper's claim."""
    problems = {name: found for name, found in result["summary"].items() if name != "claim"}
    text = [
        "## UCI regression (figure 3)\n",
        "Mean test log-likelihood in the target's own units, ± standard error over splits, by the number of weights "
        "with a posterior: 0 is the plain network, the last entry of a row its full covariance. Networks: units in a "
        "layer x hidden layers. `standard`: random splits; `gap`: the test rows are the middle "
        "third by one input. The paper shows curves and no numbers.\n",
        *([f"--fast leaves out {'; '.join(result['setting']['fast_leaves_out'])}.\n"] if result["fast"] else []),
        source(result),
        picture(result, "Test log-likelihood against the number of weights with a posterior"),
        _claim(result["summary"]["claim"]),
    ]
    for name, networks in problems.items():
        text.append(f"### {name}, {next(iter(networks.values()))['splits']} splits\n")
        methods = dict.fromkeys(key for found in networks.values() for key in found if isinstance(found[key], list))
        chosen = [method for method in methods if method not in ("full", "sizes")]
        text.append("Wasserstein selection, as in the paper:\n\n" + _sizes(networks, "wasserstein"))
        text += [folded(method, _sizes(networks, method)) for method in chosen if method != "wasserstein"]
    return "\n".join(text)


def _sizes(networks: dict[str, Any], method: str) -> str:
    sizes = sorted({entry["S"] for found in networks.values() for entry in found.get(method, found["full"])})
    rows = []
    for network, found in networks.items():
        entries = {entry["S"]: entry for entry in found.get(method, found["full"])}
        rows.append([network, *(_mean(entries[size]) if size in entries else "" for size in sizes)])
    return table(["network", *(f"S = {size:,}" for size in sizes)], rows)


def _mean(entry: dict[str, Any]) -> str:
    error = "" if entry["stderr"] is None else f" ± {number(entry['stderr'], 3)}"
    return number(entry["mean"], 3) + error


def _claim(claim: dict[str, Any]) -> str:
    rows = []
    for method, found in claim["largest_network"].items():
        pooled = found["pooled"]
        p_value = "" if pooled["p_wilcoxon"] is None else f"{pooled['p_wilcoxon']:.2g}"
        effect = "" if pooled["effect_size"] is None else number(pooled["effect_size"])
        won = f"{pooled['positive']} of {pooled['units']}"
        verdicts = [pooled["verdict"], found["pooled_over_tables"]["verdict"]]
        rows.append([method, signed(pooled["mean_difference"], 3), effect, won, p_value, *verdicts])
    head = [
        "weights chosen by",
        "difference (nats)",
        "effect size",
        "splits won",
        "p (Wilcoxon)",
        "over splits",
        "over tables",
    ]
    return (
        f"**The claim**: {claim['statement']}. Paired over splits ({claim['unit']}); the row MAP has no posterior at "
        f"all, and shows what the larger network gains by its mean alone.\n\n{table(head, rows)}\n"
        "Holds: Wilcoxon's signed-rank test at 5 %; otherwise undecided. Effect size: mean over standard deviation. "
        "Training sets of the splits of one table overlap, so that p-values over splits are too small: the last column "
        "has one unit for each table.\n"
    )
