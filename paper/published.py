"""The figures that the paper publishes, by experiment, shift, metric and method.

Daxberger et al., "Bayesian Deep Learning via Subnetwork Inference" (ICML 2021): the tables of its appendix "Additional
Image Classification Results", ResNet-18, mean and standard deviation over three seeds (`image_tables.csv`), and its
table of out-of-distribution detection (`ood_auroc.csv`).
"""

import csv
from pathlib import Path

FOLDER = Path(__file__).parent


def image_tables() -> dict[tuple[str, int, str, str], float]:
    """(benchmark, degrees or level, metric, method) -> its mean over seeds.

    benchmark: "rotated_mnist" or "corrupted_cifar10"; metric: "error", "log_likelihood", "ece" or "brier".
    """
    return {
        (row["benchmark"], int(row["shift_degrees_or_level"]), row["metric"], row["method"]): float(row["mean"])
        for row in _rows("image_tables.csv")
    }


def ood_auroc() -> dict[tuple[str, str, str], float]:
    """(training data, foreign data, method) -> AUROC."""
    return {(row["source"], row["target"], row["method"]): float(row["mean"]) for row in _rows("ood_auroc.csv")}


def _rows(name: str) -> list[dict[str, str]]:
    with (FOLDER / name).open(newline="") as file:
        return list(csv.DictReader(file))
