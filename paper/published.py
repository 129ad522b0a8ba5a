"""The figures that the paper publishes, by experiment, shift, metric and method.

Daxberger et al., "Bayesian Deep Learning via Subnetwork Inference" (ICML 2021): the tables of its appendix "Additional
Image Classification Results", ResNet-18, mean and standard deviation over three seeds (`image_tables.csv`), and its
table of out-of-distribution detection (`ood_auroc.csv`).
"""

import csv
import math
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).parent


@dataclass(frozen=True)
class Published:
    """One cell of a table; std is None where the paper gives none."""

    mean: float
    std: float | None


def image_tables() -> dict[tuple[str, int, str, str], Published]:
    """(benchmark, degrees or level, metric, method) -> its cell.

    benchmark: "rotated_mnist" or "corrupted_cifar10"; metric: "error", "log_likelihood", "ece" or "brier".
    """
    return {
        (row["benchmark"], int(row["shift_degrees_or_level"]), row["metric"], row["method"]): _cell(row)
        for row in _rows("image_tables.csv")
    }


def ood_auroc() -> dict[tuple[str, str, str], Published]:
    """(training data, foreign data, method) -> AUROC."""
    return {(row["source"], row["target"], row["method"]): _cell(row) for row in _rows("ood_auroc.csv")}


def _rows(name: str) -> list[dict[str, str]]:
    with (FOLDER / name).open(newline="") as file:
        return list(csv.DictReader(file))


def _cell(row: dict[str, str]) -> Published:
    std = float(row["std"])
    return Published(float(row["mean"]), None if math.isnan(std) else std)
