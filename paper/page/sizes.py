"""Figure 5 and appendix A.1: subnetworks and ensembles of growing size."""

from typing import Any

from benchmarks.core.markdown import Cell, number, table
from paper.images.plot import TITLES
from paper.images.sizes import summarise
from paper.images.summary import STRONG
from paper.page.results import Section, frame

KINDS = {"subnetworks": "weights", "ensembles": "networks"}


def section(result: dict[str, Any]) -> Section:
    """Log-likelihood by the size of subnetwork and ensemble."""
    stem = result["stem"]
    rows, full = [], list[dict[str, Cell]]()
    for found in result["problems"].values():
        published = found["published"]
        strong = str(STRONG[published][-1])
        for kind, unit in KINDS.items():
            measured = summarise(found["runs"])[kind]
            ends = [min(measured, key=int), max(measured, key=int)]
            for count, row in measured.items():
                shifts = {shift: value["log_likelihood"]["mean"] for shift, value in row["shifts"].items()}
                if count in ends:
                    cells = [f"{row['price']['mean']:.3g}", number(shifts["0"]), number(shifts[strong])]
                    rows.append([f"{TITLES[published]}, {unit}: {int(count):,}", *cells])
                size: dict[str, Cell] = {"experiment": published, "kind": kind, "size": int(count)}
                size |= {"passes": row["price"]["mean"], "bytes": row["bytes"]["mean"]}
                full += [size | {"shift": int(shift), "log_likelihood": value} for shift, value in shifts.items()]
    text = [
        "## Sizes of subnetworks and ensembles (figure 5, appendix A.1)\n",
        "Log-likelihood without a shift and under the strongest one, by S (Wasserstein selection, a prior precision "
        "within the budget for each S, where the paper has one for all) and by the networks of an ensemble.\n",
        table(["", "passes", "without a shift", "strongest shift"], rows),
        frame(result, "Log-likelihood by size of subnetwork and ensemble", [stem]),
    ]
    return Section("\n".join(text), {stem: full})
