"""Means and spreads over seeds, and whether the paper's ordering holds."""

from typing import Any

import numpy as np

from benchmarks.experiments.paper.images.quality import METRICS

OURS_BY_PAPER = "ours, Wasserstein"
# Rows of the paper's tables -> ours that stand for them.
PUBLISHED_ROWS = {
    "MAP": "MAP",
    "Diag-Lap": "diagonal Laplace, sampled",
    "Dropout": "dropout",
    "Ensemble": "ensemble of 5",
    "SWAG": "SWAG",
    "VOGN": "IVON",
    "Ours": OURS_BY_PAPER,
    "Ours (Rand)": "ours, random",
}
# They spend the same budget without a subnetwork.
CONTROLS = ("MAP, tempered within the budget", "diagonal Laplace, within the budget")
STRONG = {"rotated_mnist": tuple(range(45, 181, 15)), "corrupted_cifar10": (3, 4, 5)}
COSTS = ("price", "bytes", "fit_seconds")
# Kinds of corruption near those by which `novelty` strategies and `auto` choose (noise, blur).
SEEN_KINDS = (
    "gaussian_noise",
    "shot_noise",
    "impulse_noise",
    "speckle_noise",
    "gaussian_blur",
    "defocus_blur",
    "glass_blur",
    "motion_blur",
    "zoom_blur",
)
ROTATION = "rotation"
LOOKED_AT = {
    "ours, novelty-sampling": SEEN_KINDS,
    "auto, at most 3 passes": SEEN_KINDS,
    "auto, told of rotation": (*SEEN_KINDS, ROTATION),
}


def summarise(runs: list[dict[str, Any]], published: str) -> dict[str, Any]:
    """For each row its metrics, prices and detection of foreign images; then the ordering under strong shift."""
    labels = dict.fromkeys(label for run in runs for label in run["methods"])
    found = {label: [run["methods"][label] for run in runs if label in run["methods"]] for label in labels}
    table = {label: _row(rows, label) for label, rows in found.items()}
    return {"rows": table, "ordering": ordering(runs, published)}


def _row(found: list[dict[str, Any]], label: str) -> dict[str, Any]:
    shifts = found[0]["shifts"]
    unseen = [kind for kind in next(iter(found[0]["kinds"].values())) if kind not in LOOKED_AT.get(label, ())]
    common = [kind for kind in next(iter(found[0]["kinds"].values())) if kind not in SEEN_KINDS]
    return {
        "seeds": len(found),
        "shifts": {
            strength: {metric: spread([one["shifts"][strength][metric] for one in found]) for metric in METRICS}
            for strength in shifts
        },
        # None where the strategy has seen every kind of shift of this experiment.
        "unseen_log_likelihood": {
            strength: spread([float(np.mean([one["kinds"][strength][kind] for kind in common])) for one in found])
            for strength in found[0]["kinds"]
        }
        if unseen and common
        else None,
        "seen": [kind for kind in next(iter(found[0]["kinds"].values())) if kind in LOOKED_AT.get(label, ())],
        "auroc": {name: spread([one["auroc"][name] for one in found]) for name in found[0]["auroc"]},
        "accuracy_when_rejecting": {
            name: np.mean([one["accuracy_when_rejecting"][name] for one in found], axis=0).tolist()
            for name in found[0]["accuracy_when_rejecting"]
        },
        **{name: spread([float(one[name]) for one in found]) for name in COSTS},
    }


def ordering(runs: list[dict[str, Any]], published: str) -> list[dict[str, Any]]:
    """Log-likelihood of ours minus that of each of the paper's other methods and of the controls, at each strong shift,
    over seeds."""
    found = []
    for label in (*PUBLISHED_ROWS.values(), *CONTROLS):
        pairs = [run["methods"] for run in runs if label in run["methods"] and OURS_BY_PAPER in run["methods"]]
        if label == OURS_BY_PAPER or not pairs:
            continue
        for strength in STRONG[published]:
            gains = [
                pair[OURS_BY_PAPER]["shifts"][str(strength)]["log_likelihood"]
                - pair[label]["shifts"][str(strength)]["log_likelihood"]
                for pair in pairs
            ]
            found.append({"against": label, "shift": strength, "gain": spread(gains)})
    return found


def spread(values: list[float]) -> dict[str, float]:
    """Mean and standard deviation over the seeds."""
    return {"mean": float(np.mean(values)), "std": float(np.std(values))}
