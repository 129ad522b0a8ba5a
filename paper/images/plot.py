"""The picture of an image experiment: quality against the strength of the shift, ours and as published."""

from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib import pyplot as plt
from matplotlib.axes import Axes

from benchmarks.core.plots import Values, save
from paper.images.summary import summarise
from paper.published import image_tables

METRICS = {"log_likelihood": "log-likelihood (nats)", "error": "error", "ece": "ECE", "brier": "Brier score"}
# Okabe and Ito's colours. Name -> colour, line, width.
STYLES: dict[str, tuple[str, str, float]] = {
    "MAP": ("black", ":", 2.0),
    "MAP, tempered within the budget": ("black", "--", 1.4),
    "diagonal Laplace, sampled": ("#888888", "-", 1.4),
    "diagonal Laplace, linearised": ("#888888", "--", 1.4),
    "diagonal Laplace, within the budget": ("#888888", ":", 1.4),
    "dropout": ("#E69F00", "--", 1.4),
    "ensemble of 5": ("#7A6A00", "-", 2.0),
    "ensemble of 5, tempered within the budget": ("#7A6A00", "--", 1.4),
    "SWAG": ("#56B4E9", "--", 1.4),
    "IVON": ("#56B4E9", "-", 1.4),
    "ours, Wasserstein": ("#0072B2", "-", 2.6),
    "ours, Wasserstein, best held-out lambda": ("#0072B2", ":", 1.4),
    "ours, random": ("#0072B2", "--", 1.4),
    "ours, random, best held-out lambda": ("#009E73", ":", 1.4),
    "last layer": ("#E69F00", "-", 1.4),
    "MAP, tempered within 0.005 nats": ("black", "-.", 1.4),
    "added weights, 0.005 nats": ("#009E73", "-.", 2.2),
    "subnetwork and added weights, 0.005 nats": ("#D55E00", "-.", 2.6),
    "all weights, full covariance": ("#7A6A00", ":", 1.8),
}
PUBLISHED = {"Ours": ("#0072B2", "o"), "Ensemble": ("#7A6A00", "s"), "MAP": ("black", "^"), "VOGN": ("#56B4E9", "v")}
SAW = "  (saw rotation)"
AXES = {"rotated_mnist": "rotation (degrees)", "corrupted_cifar10": "level of corruption"}
TICKS = {"rotated_mnist": range(0, 181, 30), "corrupted_cifar10": range(6)}
TITLES = {"rotated_mnist": "Rotated MNIST", "corrupted_cifar10": "Corrupted CIFAR-10"}


def draw(record: Values, path: Path) -> None:
    """Four metrics against the shift, and the accuracy of what is accepted; means over the seeds."""
    rows = summarise(record["runs"], record["published"])["rows"]
    with mpl.rc_context({"font.size": 10}):
        figure = plt.figure(figsize=(17, 11), layout="constrained")
        places = figure.subplots(2, 3)
        for axes, metric in zip(places.flat, METRICS, strict=False):
            _against_shift(axes, rows, record["published"], metric)
        _rejection(places.flat[4], rows, record["rejected"])
        places.flat[5].axis("off")
        handles, labels = places.flat[0].get_legend_handles_labels()
        places.flat[5].legend(handles, labels, loc="center", fontsize=10, frameon=False)
        seeds = len(record["runs"])
        figure.suptitle(
            f"{TITLES[record['published']]}: {record['scale']['network']}, D = {record['weights']:,}, "
            f"S = {record['scale']['size']:,}, {seeds} {'seed' if seeds == 1 else 'seeds'}; "
            "marks: the paper's ResNet-18, S = 42,438",
            fontsize=13,
        )
        save(figure, path, record, dpi=80)


def _against_shift(axes: Axes, rows: dict[str, Any], published: str, metric: str) -> None:
    tables = image_tables()
    for method, (colour, marker) in PUBLISHED.items():
        found = {key[1]: mean for key, mean in tables.items() if key[0] == published and key[2:] == (metric, method)}
        strengths = sorted(found)
        label = f"the paper's {method}"
        axes.plot(strengths, [found[s] for s in strengths], marker, color=colour, mfc="none", label=label)
    for label, row in rows.items():
        colour, line, width = STYLES[label]
        named = label + (SAW if row["saw_rotation"] else "")
        values = {int(strength): found[metric]["mean"] for strength, found in row["shifts"].items()}
        axes.plot(list(values), list(values.values()), line, color=colour, linewidth=width, label=named)
    axes.set(xlabel=AXES[published], ylabel=METRICS[metric], title=METRICS[metric])
    axes.set_xticks(TICKS[published])
    axes.grid(alpha=0.3)


def _rejection(axes: Axes, rows: dict[str, Any], rejected: list[float]) -> None:
    (name,) = next(iter(rows.values()))["accuracy_when_rejecting"]
    for label, row in rows.items():
        colour, line, width = STYLES[label]
        values = row["accuracy_when_rejecting"][name]
        axes.plot(100 * np.array(rejected), values, line, color=colour, linewidth=width)
    axes.set(
        xlabel="rejected, by predictive entropy (%)",
        ylabel="accuracy of the rest (foreign images count as mistakes)",
        title=f"Rejecting among test images and {name}",
    )
    axes.grid(alpha=0.3)
