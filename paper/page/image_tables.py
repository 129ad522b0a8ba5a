"""The full tables of an image experiment: every method at every shift beside the paper's, prices, and gains."""

from typing import Any

from benchmarks.core.markdown import Cell
from paper.images.quality import METRICS
from paper.images.summary import PUBLISHED_ROWS
from paper.published import image_tables, ood_auroc

FOREIGN = {"rotated_mnist": ("MNIST", "FashionMNIST"), "corrupted_cifar10": ("CIFAR10", "SVHN")}
HALF = 10  # of the twenty shares of rejected images
Rows = list[dict[str, Cell]]


def of(result: dict[str, Any]) -> dict[str, Rows]:
    """Name of the file, after that of the results -> rows."""
    stem = result["stem"]
    found = {stem: _shifts(result), f"{stem}_methods": _methods(result), f"{stem}_gains": _gains(result)}
    if result["published"] == "corrupted_cifar10":
        found[f"{stem}_kinds"] = _kinds(result)
    return found


def _shifts(result: dict[str, Any]) -> Rows:
    """Every metric of every method at every shift, with the paper's mean where it has the method."""
    cells, rows = image_tables(), Rows()
    methods = {label: method for method, label in PUBLISHED_ROWS.items()}
    for label, row in result["summary"]["rows"].items():
        for shift, values in row["shifts"].items():
            one: dict[str, Cell] = {"method": label, "seeds": row["seeds"], "shift": int(shift)}
            for metric in METRICS:
                one |= {metric: values[metric]["mean"], f"{metric}_std": values[metric]["std"]}
                theirs = (result["published"], int(shift), metric, methods.get(label, ""))
                one[f"{metric}_in_the_paper"] = cells.get(theirs)
            rows.append(one)
    return rows


def _methods(result: dict[str, Any]) -> Rows:
    """Prices, foreign images, and what is rejected at a false-reject rate of 5 %, by shift."""
    rows = Rows()
    methods, theirs = {label: method for method, label in PUBLISHED_ROWS.items()}, ood_auroc()
    shifts = list(next(iter(result["summary"]["rows"].values()))["shifts"])
    for label, row in result["summary"]["rows"].items():
        ((foreign, auroc),) = row["auroc"].items()
        one: dict[str, Cell] = {"method": label, "seeds": row["seeds"], "saw_rotation": row["saw_rotation"]}
        one |= {name: row[name]["mean"] for name in ("price", "bytes")}
        one |= {f"auroc_{foreign}": auroc["mean"], "auroc_std": auroc["std"]}
        one[f"auroc_{FOREIGN[result['published']][1]}_in_the_paper"] = theirs.get(
            (*FOREIGN[result["published"]], methods.get(label, ""))
        )
        one["accuracy_after_rejecting_half"] = row["accuracy_when_rejecting"][foreign][HALF]
        own = row["rejection"]
        one |= {f"rejected_of_{of}_{s}": own[of].get(s) if own else None for of in ("all", "wrong") for s in shifts}
        one |= {f"rejected_of_{foreign}": own["foreign"][foreign] if own else None}
        rows.append(one | {"auroc_of_the_score": own["auroc"][foreign] if own else None})
    return rows


def _gains(result: dict[str, Any]) -> Rows:
    """Of ours over the others at each strong shift, paired over seeds."""
    return [
        {"ours": ours, "against": one["against"], "shift": one["shift"], "gain": one["gain"]["mean"]}
        | {"gain_std": one["gain"]["std"], "won": one["won"], "seeds": one["seeds"]}
        for ours, rows in result["summary"]["orderings"].items()
        for one in rows
    ]


def _kinds(result: dict[str, Any]) -> Rows:
    """Log-likelihood of every corruption at every level."""
    return [
        {"method": label, "level": int(level), "corruption": kind, "log_likelihood": value}
        for label, row in result["summary"]["rows"].items()
        for level, kinds in row["kinds"].items()
        for kind, value in kinds.items()
    ]
